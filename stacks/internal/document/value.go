package document

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/problem"
)

// yaml11Bools are the booleans of YAML 1.1, which kubectl and Helm accept. In YAML 1.2, they are
// strings.
var yaml11Bools = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

// Dialect is a dialect of YAML: yes and on are booleans for kubectl and Helm, and strings for
// kustomize. For Helm they are booleans as keys, too: the key on is the same as true, and 1.0 the
// same as 1.
type Dialect int

// Dialects.
const (
	Kubectl Dialect = iota
	Kustomize
	Helm
)

// Value converts a node to maps, slices, strings, bools, int64, float64 and nil.
func (d Dialect) Value(file string, node *yaml.Node) (any, error) {
	c := converter{file: file, dialect: d}
	return c.value(node, 0)
}

// MapLast is like Map in the dialect of Helm, but the last value of a key counts that is set
// several times: it calls onRepeated with the line and the key.
func MapLast(file string, node *yaml.Node, onRepeated func(line int, key string)) (map[string]any, error) {
	c := converter{file: file, dialect: Helm, onRepeated: onRepeated}
	return c.root(node)
}

// Map is like Value in the dialect of kubectl, for a node that must be a mapping.
func Map(file string, node *yaml.Node) (map[string]any, error) { return Kubectl.Map(file, node) }

// Map is like Value, for a node that must be a mapping.
func (d Dialect) Map(file string, node *yaml.Node) (map[string]any, error) {
	c := converter{file: file, dialect: d}
	return c.root(node)
}

// KindName describes the type of a node for messages, with an article.
func KindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return KindName(node.Alias)
	}
	switch node.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	}
	return "a string"
}

// converter converts nodes to values. It counts the values, so that alias expansion is bounded.
type converter struct {
	file    string
	dialect Dialect
	// onRepeated is called for a key that is set several times; nil: that is an error.
	onRepeated func(line int, key string)
	nodes      int
}

// root converts a node that must be a mapping.
func (c *converter) root(n *yaml.Node) (map[string]any, error) {
	v, err := c.value(n, 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, c.errorf(n, "a mapping is expected here, not %s", KindName(n))
	}
	return m, nil
}

func (c *converter) errorf(n *yaml.Node, format string, args ...any) error {
	return problem.Errorf(c.file, n.Line, format, args...)
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if c.nodes++; c.nodes > MaxNodes {
		return nil, c.errorf(n, "the document has more than %d values once its aliases are expanded", MaxNodes)
	}
	if depth > MaxDepth {
		return nil, c.errorf(n, "the document is nested deeper than %d levels", MaxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		return c.scalar(n)
	}
	return nil, c.errorf(n, "this is neither a mapping, a list nor a value")
}

func (c *converter) mapping(n *yaml.Node, depth int) (map[string]any, error) {
	out := make(map[string]any, len(n.Content)/2)
	lines := make(map[string]int, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		name, err := c.key(key)
		if err != nil {
			return nil, err
		}
		switch first, twice := lines[name]; {
		case twice && c.onRepeated != nil:
			c.onRepeated(key.Line, name)
		case twice:
			return nil, c.errorf(key, "the key %q is set twice, first on line %d", name, first)
		}
		lines[name] = key.Line
		if out[name], err = c.value(value, depth+1); err != nil {
			return nil, err
		}
	}
	for _, m := range merges {
		if err := c.merge(out, m, depth); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// merge applies a YAML merge key. Existing keys take precedence.
func (c *converter) merge(out map[string]any, n *yaml.Node, depth int) error {
	v, err := c.value(n, depth+1)
	if err != nil {
		return err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return c.errorf(n, "a merge key (<<) takes a mapping or a list of mappings")
		}
		for k, v := range m {
			if _, there := out[k]; !there {
				out[k] = v
			}
		}
	}
	return nil
}

func (c *converter) key(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", c.errorf(n, "a key must be a string")
	}
	if c.dialect == Helm {
		return c.helmKey(n)
	}
	// Keep the key as written: in files of users, the keys n and on do not mean false and true.
	return n.Value, nil
}

// helmKey converts a key to a string as Helm does: the key 0644 is the same as 420.
func (c *converter) helmKey(n *yaml.Node) (string, error) {
	v, err := c.scalar(n)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 32), nil // Helm rounds to 32 bits
	}
	return n.Value, nil
}

func (c *converter) scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, c.errorf(n, "a boolean is expected here")
		}
		return b, nil
	case "!!int", "!!float":
		return c.number(n)
	case "!!str":
		if c.dialect != Kustomize && isPlain(n) {
			if b, ok := yaml11Bools[n.Value]; ok {
				return b, nil
			}
		}
		return n.Value, nil
	case "!!binary":
		var s string
		if err := n.Decode(&s); err != nil {
			return nil, c.errorf(n, "base64 is expected after !!binary")
		}
		return s, nil
	}
	// kubectl treats timestamps and custom tags as strings.
	return n.Value, nil
}

// isPlain reports whether a scalar has neither quotes nor a tag.
func isPlain(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|
		yaml.TaggedStyle) == 0
}

func (c *converter) number(n *yaml.Node) (any, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, c.errorf(n, "a number is expected here")
	}
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case uint64:
		return nil, c.errorf(n, "the number is larger than %d", math.MaxInt64)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, c.errorf(n, "JSON does not support this number")
		}
		return v, nil
	case string:
		return v, nil
	}
	return nil, c.errorf(n, "a number is expected here")
}
