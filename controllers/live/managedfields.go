package live

import (
	"bytes"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// managed is the managedFields of an object, read without copying.
type managed struct {
	// ours is what FieldManager owns through apply; nil if nothing.
	ours map[string]any
	// oursVersion is the API version that ours is written in.
	oursVersion string
	// others are what everybody else owns, FieldManager included where it did
	// not apply.
	others []map[string]any
	// scale are those of others that were written through the scale subresource.
	scale []map[string]any
	// other is the manager, other than ours, that wrote last, status not counted.
	other string
}

func readManaged(meta map[string]any) managed {
	var m managed
	entries, _ := meta["managedFields"].([]any)
	latest := ""
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		manager, _ := entry["manager"].(string)
		operation, _ := entry["operation"].(string)
		subresource, _ := entry["subresource"].(string)
		if manager == FieldManager && operation == "Apply" && subresource == "" {
			m.ours = fields
			m.oursVersion, _ = entry["apiVersion"].(string)
			continue
		}
		if fields != nil {
			m.others = append(m.others, fields)
			if subresource == "scale" {
				m.scale = append(m.scale, fields)
			}
		}
		// RFC 3339 in UTC: the order of the texts is that of the times.
		at, _ := entry["time"].(string)
		if manager != FieldManager && subresource != "status" && at >= latest {
			m.other, latest = manager, at
		}
	}
	return m
}

// scaledToZero is true for a number of replicas that nobody owns and that no
// default explains: of a 0 written through the scale subresource the API server
// does not note who wrote it.
func (m *managed) scaledToZero(object map[string]any) bool {
	tokens := []string{"spec", "replicas"}
	v, present := lookup(object, tokens)
	if !present || !same(v, int64(0)) || owns(m.ours, object, tokens) {
		return false
	}
	for _, o := range m.others {
		if owns(o, object, tokens) {
			return false
		}
	}
	return true
}

// finalizedBy is the field manager that set the finalizers of an object, the last
// one if there were several.
func finalizedBy(meta map[string]any) (manager string) {
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		md, _ := field(fields, "metadata")
		if _, ok := field(md, "finalizers"); ok {
			manager, _ = entry["manager"].(string)
		}
	}
	return manager
}

// field is the node of a field of a managedFields tree.
func field(node map[string]any, name string) (map[string]any, bool) {
	n, ok := node["f:"+name].(map[string]any)
	return n, ok
}

// isLeaf is true for a node that owns its value as a whole.
func isLeaf(node map[string]any) bool {
	_, dot := node["."]
	return len(node) == 0 || (dot && len(node) == 1)
}

// trace follows a pointer through a managedFields tree as far as that goes. It
// returns the number of tokens it followed and the node that it came to.
func trace(node map[string]any, root any, tokens []string) (int, map[string]any) {
	v := root
	for depth, t := range tokens {
		var next map[string]any
		switch c := v.(type) {
		case map[string]any:
			next, _ = field(node, t)
			v = c[t]
		case []any:
			item, ok := lookup(c, []string{t})
			if !ok {
				return depth, node
			}
			next = itemNode(node, item, t)
			v = item
		default:
			next, _ = field(node, t)
			v = nil
		}
		if next == nil {
			return depth, node
		}
		node = next
	}
	return len(tokens), node
}

// owns reports whether a managedFields tree has the field at a pointer, or a
// part of it. What is inside a value that is owned as a whole, atomicAbove tells.
func owns(node map[string]any, root any, tokens []string) bool {
	depth, _ := trace(node, root, tokens)
	return depth == len(tokens)
}

// atomicAbove returns how many tokens of a pointer lead to the list or map that
// the field is in and that has one owner as a whole; 0 when there is none.
func (m *managed) atomicAbove(object map[string]any, tokens []string) int {
	deepest, leaf := trace(m.ours, object, tokens)
	for _, o := range m.others {
		if depth, at := trace(o, object, tokens); depth > deepest {
			deepest, leaf = depth, at
		}
	}
	if deepest == 0 || deepest == len(tokens) || !isLeaf(leaf) {
		return 0
	}
	switch v, _ := lookup(object, tokens[:deepest]); v.(type) {
	case map[string]any, []any:
		return deepest
	}
	return 0
}

// itemNode is the node of a managedFields tree that stands for an item of a list.
func itemNode(node map[string]any, item any, index string) map[string]any {
	for key, n := range node {
		if len(key) < 2 || key[1] != ':' {
			continue
		}
		child, ok := n.(map[string]any)
		if !ok {
			continue
		}
		if key == "i:"+index {
			return child
		}
		if match, ok := parseItemKey(key); ok && match.is(item) {
			return child
		}
	}
	return nil
}

// itemKey is how managedFields name an item of a list: by the value of some of
// its fields (k:) or by its own value (v:).
type itemKey struct {
	fields map[string]any
	value  any
}

func parseItemKey(key string) (itemKey, bool) {
	switch {
	case strings.HasPrefix(key, "k:"):
		var k itemKey
		if err := json.Unmarshal([]byte(key[2:]), &k.fields); err != nil || len(k.fields) == 0 {
			return itemKey{}, false
		}
		return k, true
	case strings.HasPrefix(key, "v:"):
		// The decoder keeps integers whole only inside a map or a slice.
		var v []any
		if err := json.Unmarshal([]byte("["+key[2:]+"]"), &v); err != nil || len(v) != 1 {
			return itemKey{}, false
		}
		return itemKey{value: v[0]}, true
	default:
		return itemKey{}, false
	}
}

func (k itemKey) is(item any) bool {
	if k.fields == nil {
		return same(k.value, item)
	}
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range k.fields {
		got, ok := m[name]
		if !ok || !same(want, got) {
			return false
		}
	}
	return true
}

// same compares scalars as the API server does: 1 and 1.0 are one number.
func same(a, b any) bool {
	switch a.(type) {
	case map[string]any, []any:
		return bytes.Equal(appendValue(nil, a, nil, nil), appendValue(nil, b, nil, nil))
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return normalised(a) == normalised(b)
}
