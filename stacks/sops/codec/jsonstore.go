package codec

import (
	"bytes"
	stdjson "encoding/json"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/stores"
	"github.com/getsops/sops/v3/stores/json"
)

// jsonStore is the store of the library, with another writer. The library copies the written part
// of a list for each entry, which takes too long for long lists. The bytes are the same.
type jsonStore struct{ *json.Store }

// EmitEncryptedFile implements library.Store.
func (s jsonStore) EmitEncryptedFile(tree library.Tree) ([]byte, error) {
	branches, err := stores.SerializeMetadata(tree, stores.MetadataOpts{Flatten: stores.MetadataFlattenNone})
	if err != nil {
		return nil, err
	}
	return s.EmitPlainFile(branches)
}

// EmitPlainFile implements library.Store.
func (jsonStore) EmitPlainFile(branches library.TreeBranches) ([]byte, error) {
	var flat, out bytes.Buffer
	if err := writeJSON(&flat, branches[0]); err != nil {
		return nil, err
	}
	if err := stdjson.Indent(&out, flat.Bytes(), "", "\t"); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// writeJSON writes a value of a tree. It omits comments, which can result from decryption: JSON has
// no comments.
func writeJSON(out *bytes.Buffer, value any) error {
	separator := ""
	startItem := func() { out.WriteString(separator); separator = "," }
	switch v := value.(type) {
	case library.TreeBranch:
		out.WriteByte('{')
		for _, item := range v {
			if _, ok := item.Key.(library.Comment); ok {
				continue
			}
			startItem()
			if err := writeJSON(out, item.Key); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeJSON(out, item.Value); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for _, one := range v {
			if _, ok := one.(library.Comment); ok {
				continue
			}
			startItem()
			if err := writeJSON(out, one); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		text, err := stdjson.Marshal(v)
		out.Write(text)
		return err
	}
	return nil
}
