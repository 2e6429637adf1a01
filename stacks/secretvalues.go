package stacks

import (
	"encoding/base64"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// decryptedSecrets are the values that encrypted files hold and that stand readable in none
// of them, as names and kinds do where only secrets are encrypted.
func decryptedSecrets(tree *source.Tree, plain map[string][]byte) (out []string) {
	for name, data := range plain {
		stored, err := tree.Stored(name, source.MaxFile)
		if err != nil {
			stored = nil
		}
		f, _ := sops.Detect(name, stored)
		readable := map[string]bool{}
		for _, v := range leaves(f, stored) {
			readable[v] = true
		}
		for _, v := range leaves(f, data) {
			if readable[v] {
				continue
			}
			out = append(out, v)
			if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
				out = append(out, string(raw)) // of a Secret
			}
		}
	}
	return out
}

// leaves are the values of a file; every line of one that is not understood.
func leaves(f sops.Format, data []byte) (out []string) {
	switch f {
	case sops.YAML, sops.JSON:
		docs, err := document.Parse("", data)
		if err != nil {
			break
		}
		for _, doc := range docs {
			out = nodeValues(out, doc.Root)
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

// nodeValues appends the scalars of a document that are no keys. Aliases stand for what is
// there already.
func nodeValues(out []string, n *yaml.Node) []string {
	switch n.Kind {
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null", "!!bool":
			return out
		}
		return append(out, n.Value)
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			out = nodeValues(out, n.Content[i])
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			out = nodeValues(out, item)
		}
	}
	return out
}
