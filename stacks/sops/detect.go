package sops

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// The metadata of a file has at least one of these.
const (
	macKey      = "mac"
	modifiedKey = "lastmodified"
)

// Detect tells whether a file is one of SOPS, by its name and by what it holds, and in which
// format. One whose name says nothing can be of any format.
func Detect(name string, data []byte) (Format, bool) {
	f := FormatOf(name)
	if !bytes.Contains(data, []byte("sops")) {
		return f, false
	}
	if f != Binary {
		return f, Encrypted(data, f)
	}
	for _, f := range []Format{Binary, Dotenv, INI} {
		if Encrypted(data, f) {
			return f, true
		}
	}
	// One that can't be read is a text that tells of SOPS.
	if sealed, err := sealedYAML(data); err == nil && sealed {
		return YAML, true
	}
	return Binary, false
}

// Encrypted tells whether a file is one of SOPS: whether it has its metadata, in YAML whether
// one of its documents has it. It looks closer only at files in which the word stands, and
// never fails: one that can't be read counts as encrypted if it looks like one of SOPS, so
// that who decrypts it says what is wrong.
func Encrypted(data []byte, f Format) bool {
	switch f {
	case Dotenv:
		return line(data, "sops_mac=") || line(data, "sops_lastmodified=")
	case INI:
		return line(data, "[sops]") && (line(data, macKey) || line(data, modifiedKey))
	}
	if !bytes.Contains(data, []byte("sops")) {
		return false
	}
	look := sealedJSON
	if f == YAML {
		look = sealedYAML
	}
	sealed, err := look(data)
	return sealed || err != nil && damaged(data, f)
}

// damaged tells whether a file that can't be read was one of SOPS. Templates and pages that
// merely tell of it are none.
func damaged(data []byte, f Format) bool {
	if !bytes.Contains(data, []byte("ENC[")) {
		return false
	}
	object := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && bytes.Contains(data, []byte(`"sops"`))
	return object || f == YAML && line(data, "sops:")
}

// errPanic stands for what a parser gave up with.
var errPanic = errors.New("the parser gave up")

// sealedYAML tells whether a document has the metadata; an error: the file can't be read.
// Aliases are not followed further than to a mapping, so that none multiplies.
func sealedYAML(data []byte) (sealed bool, err error) {
	defer func() {
		if recover() != nil {
			sealed, err = false, errPanic
		}
	}()
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case doc.Kind == yaml.DocumentNode && len(doc.Content) == 1:
			meta := valueOf(doc.Content[0], "sops")
			if valueOf(meta, macKey) != nil || valueOf(meta, modifiedKey) != nil {
				return true, nil
			}
		}
	}
}

// valueOf a key of a mapping; nil if there is none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// sealedJSON tells whether a file has the metadata; an error: it can't be read.
func sealedJSON(data []byte) (bool, error) {
	var top struct {
		Sops json.RawMessage `json:"sops"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return false, err
	}
	var meta map[string]json.RawMessage
	if json.Unmarshal(top.Sops, &meta) != nil {
		return false, nil //nolint:nilerr // something else of that name
	}
	return meta[macKey] != nil || meta[modifiedKey] != nil, nil
}

// line tells whether one of the lines begins so.
func line(data []byte, prefix string) bool {
	return bytes.HasPrefix(data, []byte(prefix)) || bytes.Contains(data, []byte("\n"+prefix))
}
