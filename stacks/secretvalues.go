package stacks

import (
	"encoding/base64"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// decryptedSecrets returns the values of decrypted files that are not in plain text in the
// encrypted file. Names and kinds, for example, are in plain text if only the data of a Secret is
// encrypted.
func decryptedSecrets(tree *source.Tree, plain map[string][]byte) (out []string) {
	for name, data := range plain {
		stored, _ := tree.ReadRaw(name, source.MaxFile) //nolint:errcheck // stored is nil in case of an error
		f, _ := sops.Detect(name, stored)
		readable := map[string]bool{}
		for _, v := range leafValues(f, stored) {
			readable[v] = true
		}
		for _, v := range leafValues(f, data) {
			if readable[v] {
				continue
			}
			out = append(out, v)
			if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
				out = append(out, string(raw)) // the data of a Secret
			}
		}
	}
	return out
}

// leafValues returns the values of a file, or every line if the file cannot be parsed.
func leafValues(f sops.Format, data []byte) (out []string) {
	switch f {
	case sops.YAML, sops.JSON:
		docs, err := document.Parse("", data)
		if err != nil {
			break
		}
		for _, doc := range docs {
			out = appendScalars(out, doc.Root)
		}
		return out
	case sops.Dotenv, sops.INI:
		for line := range strings.Lines(string(data)) {
			if _, value, ok := strings.Cut(line, "="); ok {
				out = append(out, strings.Trim(strings.TrimSpace(value), `"'`))
			}
		}
		return out
	}
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// appendScalars appends the scalars of a document except for keys. It skips aliases: their anchors
// are visited anyway.
func appendScalars(out []string, n *yaml.Node) []string {
	switch n.Kind {
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null", "!!bool":
			return out
		}
		return append(out, n.Value)
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			out = appendScalars(out, n.Content[i])
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			out = appendScalars(out, item)
		}
	}
	return out
}
