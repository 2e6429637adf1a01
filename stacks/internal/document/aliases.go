package document

import (
	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/problem"
)

// CheckAliasExpansion returns an error if a document of a file has more than MaxNodes values after
// alias expansion. It is for files that another parser reads, so it ignores files that are not
// valid YAML: that parser reports them.
func CheckAliasExpansion(file string, data []byte) error {
	docs, err := Parse(file, data)
	if err != nil {
		return nil //nolint:nilerr // the other parser reports the error
	}
	left := MaxNodes
	for _, d := range docs {
		if countExpanded(d.Root, &left, 0); left < 0 {
			return problem.Errorf(file, d.Line, "the document has more than %d values once its aliases are expanded",
				MaxNodes)
		}
	}
	return nil
}

// countExpanded decrements left for every value of n with its aliases expanded. It stops when left
// is negative.
func countExpanded(n *yaml.Node, left *int, depth int) {
	if *left--; *left < 0 {
		return
	}
	if depth > MaxNodes/10 {
		*left = -1 // an alias that contains itself
		return
	}
	if n.Kind == yaml.AliasNode {
		countExpanded(n.Alias, left, depth+1)
		return
	}
	for _, c := range n.Content {
		if countExpanded(c, left, depth+1); *left < 0 {
			return
		}
	}
}
