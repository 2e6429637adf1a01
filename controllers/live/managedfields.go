package live

import (
	"bytes"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// managedFields is the parsed metadata.managedFields of an object. It shares the maps of the
// object.
type managedFields struct {
	// ours is the field set that FieldManager owns through apply; nil if there is none.
	ours map[string]any
	// oursVersion is the API version of that field set.
	oursVersion string
	// others are all other field sets, including those of FieldManager from operations
	// other than apply.
	others []map[string]any
	// scale are the elements of others from writes through the scale subresource.
	scale []map[string]any
	// finalizerManager is the manager that set the finalizers; the last one if there are
	// several.
	finalizerManager string
	// otherManager is the manager, other than FieldManager, of the latest write; writes of
	// the status and contributions do not count.
	otherManager string
}

func parseManagedFields(meta map[string]any) managedFields {
	var m managedFields
	entries, _ := meta["managedFields"].([]any)
	latest := ""
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		manager, _ := entry["manager"].(string)
		operation, _ := entry["operation"].(string)
		subresource, _ := entry["subresource"].(string)
		md, _ := field(fields, "metadata")
		if _, ok := field(md, "finalizers"); ok {
			m.finalizerManager = manager
		}
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
		// The times are RFC 3339 in UTC, so that their lexical order is chronological.
		at, _ := entry["time"].(string)
		if manager != FieldManager && !IsContributionManager(manager) && subresource != "status" && at >= latest {
			m.otherManager, latest = manager, at
		}
	}
	return m
}

// scaledToZero reports whether the replicas are 0 without an owner. No default sets 0, so that the
// value comes from a write through the scale subresource: the API server records no owner for a 0
// that is written this way.
func (m *managedFields) scaledToZero(object map[string]any) bool {
	v, present := lookup(object, replicasPath.tokens)
	return present && equalValues(v, int64(0)) &&
		!owns(m.ours, object, replicasPath) && !m.othersOwn(object, replicasPath)
}

// othersOwn reports whether another field set contains the field at a path, or a part of it.
func (m *managedFields) othersOwn(object map[string]any, path ignoredPath) bool {
	return slices.ContainsFunc(m.others, func(o map[string]any) bool { return owns(o, object, path) })
}

// field returns the node of a field in a managedFields tree.
func field(node map[string]any, name string) (map[string]any, bool) {
	n, ok := node["f:"+name].(map[string]any)
	return n, ok
}

// isLeaf reports whether a node owns its value as a whole.
func isLeaf(node map[string]any) bool {
	_, dot := node["."]
	return len(node) == 0 || (dot && len(node) == 1)
}

// walk follows a path through a managedFields tree as far as possible. It returns the number of
// tokens that it followed and the last node.
func walk(node map[string]any, root any, path ignoredPath) (int, map[string]any) {
	v := root
	for depth, t := range path.tokens {
		var next map[string]any
		if list, ok := v.([]any); ok {
			item, ok := lookup(list, []string{t})
			if !ok {
				return depth, node
			}
			if len(path.keys) > depth && isItemKey(path.keys[depth]) {
				next, _ = node[path.keys[depth]].(map[string]any)
			} else {
				next = itemNode(node, item, t)
			}
			v = item
		} else {
			m, _ := v.(map[string]any)
			next, _ = field(node, t)
			v = m[t]
		}
		if next == nil {
			return depth, node
		}
		node = next
	}
	return len(path.tokens), node
}

// owns reports whether a managedFields tree contains the field at a path, or a part of it. It is
// false inside a value that is owned as a whole; see atomicAncestor.
func owns(node map[string]any, root any, path ignoredPath) bool {
	depth, _ := walk(node, root, path)
	return depth == len(path.tokens)
}

// atomicAncestor returns the number of tokens of a path that lead to an atomic list or map which
// contains the field; 0 if there is none.
func (m *managedFields) atomicAncestor(object map[string]any, path ignoredPath) int {
	deepest, leaf := walk(m.ours, object, path)
	for _, o := range m.others {
		if depth, at := walk(o, object, path); depth > deepest {
			deepest, leaf = depth, at
		}
	}
	if deepest == 0 || deepest == len(path.tokens) || !isLeaf(leaf) {
		return 0
	}
	if v, _ := lookup(object, path.tokens[:deepest]); isComposite(v) {
		return deepest
	}
	return 0
}

// itemNode returns the managedFields node of a list item; nil if there is none.
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
		if match, ok := parseItemKey(key); ok && match.matches(item) {
			return child
		}
	}
	return nil
}

// itemKey is a managedFields key of a list item: the values of its key fields (k:) or the value of
// the item itself (v:).
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
		// The decoder keeps integers exact only inside a map or a slice.
		var v []any
		if err := json.Unmarshal([]byte("["+key[2:]+"]"), &v); err != nil || len(v) != 1 {
			return itemKey{}, false
		}
		return itemKey{value: v[0]}, true
	default:
		return itemKey{}, false
	}
}

func (k itemKey) matches(item any) bool {
	if k.fields == nil {
		return equalValues(k.value, item)
	}
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range k.fields {
		got, ok := m[name]
		if !ok || !equalValues(want, got) {
			return false
		}
	}
	return true
}

// equalValues compares JSON values. Numbers are equal as in the API server: 1 equals 1.0.
func equalValues(a, b any) bool {
	if isComposite(a) {
		return bytes.Equal(appendValue(nil, a, nil, nil), appendValue(nil, b, nil, nil))
	}
	return !isComposite(b) && normalize(a) == normalize(b)
}
