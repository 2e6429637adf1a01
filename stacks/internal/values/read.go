package values

import (
	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Read reads a values file of the source.
func Read(tree *source.Tree, file string) (map[string]any, error) {
	data, err := tree.Read(file, source.MaxFile)
	if err != nil {
		return nil, err
	}
	root, err := ParseNode(file, data)
	if root == nil || err != nil {
		return nil, err
	}
	return document.Helm.Map(file, root)
}

// ParseNode parses the YAML document of a values file. It returns nil if the file is empty.
func ParseNode(file string, data []byte) (*yaml.Node, error) {
	docs, err := document.Parse(file, data)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	if len(docs) > 1 {
		return nil, problem.Errorf(file, docs[1].Line,
			"a values file must have one YAML document, and this is the second")
	}
	return docs[0].Root, nil
}
