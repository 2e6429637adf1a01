package live

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"

	"github.com/ksctl/gitops/stacks"
)

// secretData hashes the data of a Secret. Hashes of owned fields are published in statuses. With a
// key, an HMAC of each value enters the hash, so that nobody can guess values by trying them.
// Without a key, only the owner of each value enters the hash; it changes when another manager
// writes the value.
type secretData struct {
	key  []byte
	data map[string]any
}

// newSecretData returns nil if the object is not a Secret.
func newSecretData(ref stacks.Ref, object map[string]any, key []byte) *secretData {
	if ref.GroupKind() != secretKind {
		return nil
	}
	data, _ := object["data"].(map[string]any)
	return &secretData{key: key, data: data}
}

// isDataPath reports whether a managedFields path is a key of data or stringData.
func (s *secretData) isDataPath(path []string) bool {
	return s != nil && len(path) == 2 && (path[0] == "f:data" || path[0] == "f:stringData")
}

// append writes the value of a key of the data. The API server stores applied stringData as data,
// but the managedFields entry still names stringData.
func (s *secretData) append(b []byte, path []string, others []map[string]any) []byte {
	value, ok := s.data[strings.TrimPrefix(path[1], "f:")].(string)
	if !ok {
		return append(b, '-')
	}
	b = append(b, '+')
	if len(s.key) > 0 {
		h := hmac.New(sha256.New, s.key)
		h.Write([]byte(value))
		return h.Sum(b)
	}
	for _, o := range others {
		data, _ := field(o, "data")
		if _, theirs := data[path[1]]; theirs {
			return append(b, 'o')
		}
	}
	return b
}
