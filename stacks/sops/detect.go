package sops

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// The metadata of an encrypted file has at least one of these keys.
const (
	macKey          = "mac"
	lastModifiedKey = "lastmodified"
)

// Detect returns the format of a file, and whether it is encrypted with SOPS, by its name and its
// content. A file with an unknown extension can have any format.
func Detect(name string, data []byte) (Format, bool) {
	f := FormatOf(name)
	if !bytes.Contains(data, []byte("sops")) {
		return f, false
	}
	if f != Binary {
		return f, IsEncrypted(data, f)
	}
	for _, f := range []Format{Binary, Dotenv, INI} {
		if IsEncrypted(data, f) {
			return f, true
		}
	}
	// A file that can't be parsed is a text that mentions SOPS.
	if encrypted, err := hasYAMLMetadata(data); err == nil && encrypted {
		return YAML, true
	}
	return Binary, false
}

// IsEncrypted is true if a file has the metadata of SOPS; in YAML, if any of its documents has. It
// parses only files that contain the word sops. A file that can't be parsed counts as encrypted if
// it looks like a SOPS file, so that decrypting it returns the error.
func IsEncrypted(data []byte, f Format) bool {
	switch f {
	case Dotenv:
		return hasLine(data, "sops_mac=") || hasLine(data, "sops_lastmodified=")
	case INI:
		return hasLine(data, "[sops]") && (hasLine(data, macKey) || hasLine(data, lastModifiedKey))
	}
	if !bytes.Contains(data, []byte("sops")) {
		return false
	}
	hasMetadata := hasJSONMetadata
	if f == YAML {
		hasMetadata = hasYAMLMetadata
	}
	encrypted, err := hasMetadata(data)
	return encrypted || err != nil && looksDamaged(data, f)
}

// looksDamaged is true if a file that can't be parsed looks like a SOPS file. Templates and texts
// that mention SOPS do not.
func looksDamaged(data []byte, f Format) bool {
	if !bytes.Contains(data, []byte("ENC[")) {
		return false
	}
	object := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && bytes.Contains(data, []byte(`"sops"`))
	return object || f == YAML && hasLine(data, "sops:")
}

// errPanic replaces the panic of a parser.
var errPanic = errors.New("the parser panicked")

// hasYAMLMetadata is true if a document of the file has the metadata. An error means that the file
// can't be parsed. It resolves aliases only where it expects a mapping, so that aliases can't
// multiply the cost.
func hasYAMLMetadata(data []byte) (found bool, err error) {
	defer func() {
		if recover() != nil {
			found, err = false, errPanic
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
			metadata := mappingValue(doc.Content[0], "sops")
			if mappingValue(metadata, macKey) != nil || mappingValue(metadata, lastModifiedKey) != nil {
				return true, nil
			}
		}
	}
}

// mappingValue returns the value of a key in a mapping, or nil.
func mappingValue(n *yaml.Node, key string) *yaml.Node {
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

// hasJSONMetadata is true if a file has the metadata. An error means that it can't be parsed.
func hasJSONMetadata(data []byte) (bool, error) {
	var top struct {
		Sops json.RawMessage `json:"sops"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return false, err
	}
	var metadata map[string]json.RawMessage
	if json.Unmarshal(top.Sops, &metadata) != nil {
		return false, nil //nolint:nilerr // another value with the key sops
	}
	return metadata[macKey] != nil || metadata[lastModifiedKey] != nil, nil
}

// hasLine is true if any line starts with the prefix.
func hasLine(data []byte, prefix string) bool {
	return bytes.HasPrefix(data, []byte(prefix)) || bytes.Contains(data, []byte("\n"+prefix))
}
