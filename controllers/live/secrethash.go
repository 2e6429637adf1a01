package live

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"

	"github.com/ksctl/gitops/stacks"
)

func isSecret(r stacks.Ref) bool { return r.Group == "" && r.Kind == "Secret" }

// secretData hashes the data of a Secret. Hashes of owned fields are published:
// with a key, the values go in keyed, so that nobody can try values out; without
// one, only who holds them does, which changes when somebody writes them.
type secretData struct {
	key  []byte
	data map[string]any
}

// newSecretData returns nil for an object that is no Secret.
func newSecretData(ref stacks.Ref, object map[string]any, key []byte) *secretData {
	if !isSecret(ref) {
		return nil
	}
	data, _ := object["data"].(map[string]any)
	return &secretData{key: key, data: data}
}

// holds reports whether a path of managedFields leads into the data.
func (s *secretData) holds(path []string) bool {
	return s != nil && len(path) == 2 && (path[0] == "f:data" || path[0] == "f:stringData")
}

// append writes what a key of the data stands for. Text that was applied as
// stringData is stored as data, which its managedFields do not tell.
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
