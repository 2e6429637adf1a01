package manifests

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Tags of scalars.
const (
	nullTag      = "!!null"
	stringTag    = "!!str"
	timestampTag = "!!timestamp"
	mergeTag     = "!!merge"
)

// maxNesting is the maximum depth of a document.
const maxNesting = 100

// lineError is an error at a line of a document.
type lineError struct {
	line   int
	reason string
}

// Error implements error.
func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.reason) }

func lineErrorf(line int, format string, args ...any) error {
	return &lineError{line, fmt.Sprintf(format, args...)}
}

// valueOf converts a node without aliases to maps, lists, strings, bools, int64, float64 and nil.
// yes and on are strings, as in YAML 1.2 and for kustomize.
func valueOf(n *yaml.Node, depth int) (any, error) {
	if depth > maxNesting {
		return nil, lineErrorf(n.Line, "it is nested more than %d levels deep", maxNesting)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == nullTag || key.ShortTag() == mergeTag {
				return nil, lineErrorf(key.Line, "a key is not a string")
			}
			if _, twice := out[key.Value]; twice {
				return nil, lineErrorf(key.Line, "the key %q is set twice", key.Value)
			}
			v, err := valueOf(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := valueOf(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		return scalarOf(n)
	}
	return nil, lineErrorf(n.Line, "aliases are not supported")
}

func scalarOf(n *yaml.Node) (any, error) {
	switch tag := n.ShortTag(); tag {
	case nullTag:
		return nil, nil
	case stringTag, timestampTag:
		return n.Value, nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, lineErrorf(n.Line, "the value cannot be read")
		}
		return normalize(v)
	default:
		return nil, lineErrorf(n.Line, "the tag %s is not supported", tag)
	}
}

// normalize converts a value to the types of valueOf, as a copy.
func normalize(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			var err error
			if out[k], err = normalize(field); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = normalize(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case nil, string, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case uint64:
		return float64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a number is infinite or none")
		}
		return v, nil
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		return f, err
	case time.Time:
		return v.Format(time.RFC3339Nano), nil
	}
	return nil, fmt.Errorf("a value has the type %T, which JSON does not have", v)
}

// equal compares values. Numbers are equal if JSON could write them alike.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if other, ok := b[k]; !ok || !equal(v, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return equalNumbers(a, f)
		}
	case float64:
		if i, ok := b.(int64); ok {
			return equalNumbers(i, a)
		}
	}
	return a == b
}

// equalNumbers compares exactly: not every int64 is a float64.
func equalNumbers(i int64, f float64) bool {
	return f == math.Trunc(f) && math.Abs(f) < 1<<63 && int64(f) == i
}

// firstDifference returns the path of the first field in which got differs from expected, and an
// empty string without one. A null is the same as no field.
func firstDifference(expected, got any, path string) string {
	a, okA := expected.(map[string]any)
	b, okB := got.(map[string]any)
	if okA && okB {
		for _, k := range sortedKeys(a, b) {
			if d := firstDifference(a[k], b[k], join(path, k)); d != "" {
				return d
			}
		}
		return ""
	}
	listA, okA := expected.([]any)
	listB, okB := got.([]any)
	if okA && okB {
		for i := range min(len(listA), len(listB)) {
			if d := firstDifference(listA[i], listB[i], fmt.Sprintf("%s[%d]", path, i)); d != "" {
				return d
			}
		}
		if len(listA) != len(listB) {
			return fmt.Sprintf("%s[%d]", path, min(len(listA), len(listB)))
		}
		return ""
	}
	if equal(expected, got) {
		return ""
	}
	return cmp.Or(path, "the object")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// sortedKeys returns the keys of all maps without duplicates.
func sortedKeys(maps ...map[string]any) []string {
	var out []string
	for _, m := range maps {
		for k := range m {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func asString(v any) string {
	s, _ := v.(string)
	return s
}

// child returns the value of a key in a mapping, with its alias resolved, or nil.
func child(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		var next *yaml.Node
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				next = n.Content[i+1]
			}
		}
		if next != nil && next.Kind == yaml.AliasNode {
			next = next.Alias
		}
		n = next
	}
	return n
}

// scalar returns the text of a scalar, or an empty string.
func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// keyOf returns the identity that a document has itself.
func keyOf(n *yaml.Node) Key {
	return Key{Group: groupOf(scalar(child(n, "apiVersion"))), Kind: scalar(child(n, "kind")),
		Namespace: scalar(child(n, "metadata", "namespace")), Name: scalar(child(n, "metadata", "name"))}
}

// mergedIdentity returns the line of the first merge key that may set a field of keyOf, or 0.
func mergedIdentity(n *yaml.Node) int {
	for _, mapping := range []*yaml.Node{n, child(n, "metadata")} {
		for i := 0; mapping != nil && mapping.Kind == yaml.MappingNode && i < len(mapping.Content); i += 2 {
			if mapping.Content[i].Tag == mergeTag {
				return mapping.Content[i].Line
			}
		}
	}
	return 0
}

// keyOfValue is keyOf for a rendered object.
func keyOfValue(m map[string]any) Key {
	meta := asMap(m["metadata"])
	return Key{Group: groupOf(asString(m["apiVersion"])), Kind: asString(m["kind"]),
		Namespace: asString(meta["namespace"]), Name: asString(meta["name"])}
}

// anchorLine returns the line of the first anchor, alias or merge key of a document, or 0.
func anchorLine(n *yaml.Node) int {
	if n.Anchor != "" || n.Kind == yaml.AliasNode || n.Kind == yaml.ScalarNode && n.Tag == mergeTag {
		return n.Line
	}
	for _, c := range n.Content {
		if line := anchorLine(c); line > 0 {
			return line
		}
	}
	return 0
}
