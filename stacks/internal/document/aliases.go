package document

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/problem"
)

// Bounded refuses a file whose documents multiply without bound once their
// aliases are expanded. It is for files that something else parses: what is no
// YAML is that one's to refuse.
func Bounded(file string, data []byte) error {
	docs, err := Parse(file, data)
	if err != nil {
		return nil //nolint:nilerr // not for this function to say
	}
	left := MaxNodes
	for _, d := range docs {
		if expand(d.Root, &left, 0); left < 0 {
			return &problem.Error{File: file, Line: d.Line,
				Message: fmt.Sprintf("the document has more than %d values once its aliases are expanded", MaxNodes)}
		}
	}
	return nil
}

// expand counts values down until none are left.
func expand(n *yaml.Node, left *int, depth int) {
	if *left--; *left < 0 {
		return
	}
	if depth > MaxNodes/10 {
		*left = -1 // an alias of itself
		return
	}
	if n.Kind == yaml.AliasNode {
		expand(n.Alias, left, depth+1)
		return
	}
	for _, c := range n.Content {
		if expand(c, left, depth+1); *left < 0 {
			return
		}
	}
}
