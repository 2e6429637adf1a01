package live

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// LostField is a field that FieldManager applied, and does not own any more.
type LostField struct {
	// Path is the JSON pointer of the field. A list item is [field=value] where a field of its key
	// is unique in the list, else its index.
	Path string
	// Managers are the field managers that own the field; none if it was removed.
	Managers []string
}

// LostFields returns the fields of an applied object that FieldManager does not own in the live
// object, in the order of their paths: others changed them since. If there are none, it returns
// those that were removed. It compares owners, no values.
func LostFields(u *unstructured.Unstructured, applied map[string]any) []LostField {
	f := lostFields{}
	f.compareFields(nil, applied, u.Object, ownerNodes(u))
	owned := slices.DeleteFunc(slices.Clone(f.found), func(l LostField) bool { return len(l.Managers) == 0 })
	if len(owned) > 0 {
		return owned // the API server drops some fields of manifests: they look as if they were removed
	}
	return f.found
}

// ownerNode is the managedFields node of a value in the entry of a manager.
type ownerNode struct {
	manager string
	// ours is true for the entry of FieldManager from apply.
	ours   bool
	fields map[string]any
}

// ownerNodes returns the managedFields of an object.
func ownerNodes(u *unstructured.Unstructured) (nodes []ownerNode) {
	meta, _ := u.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		n := ownerNode{}
		n.manager, _ = entry["manager"].(string)
		n.fields, _ = entry["fieldsV1"].(map[string]any)
		n.ours = n.manager == FieldManager && entry["operation"] == "Apply" && entry["subresource"] == nil
		nodes = append(nodes, n)
	}
	return nodes
}

type lostFields struct{ found []LostField }

// fieldsWithoutOwner are fields of manifests that no manager owns.
var fieldsWithoutOwner = []string{"/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/status"}

// compareFields compares the fields of an object.
func (f *lostFields) compareFields(path []string, applied, object map[string]any, nodes []ownerNode) {
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if applied[name] == nil || slices.Contains(fieldsWithoutOwner, FormatPointer(append(path, name))) {
			continue
		}
		f.compare(append(path, name), applied[name], object[name], nodesBelow(nodes, "f:"+name))
	}
}

// compare compares a value.
func (f *lostFields) compare(path []string, applied, object any, nodes []ownerNode) {
	own := slices.IndexFunc(nodes, func(n ownerNode) bool { return n.ours })
	atomic := slices.ContainsFunc(nodes, func(n ownerNode) bool { return isLeaf(n.fields) && (n.ours || own < 0) })
	lost := own < 0
	switch a := applied.(type) {
	case map[string]any:
		if o, ok := object.(map[string]any); ok && !atomic && len(a) > 0 {
			f.compareFields(path, a, o, nodes)
			return
		}
	case []any:
		if o, ok := object.([]any); ok && !atomic && hasItemKeys(nodes) {
			f.compareItems(path, a, o, nodes)
			return
		}
		lost = lost || !atomic && !hasValues(nodes[own].fields, a)
	}
	if lost {
		f.add(path, nodes)
	}
}

// hasValues reports whether the managedFields node of a set has all values.
func hasValues(node map[string]any, values []any) bool {
	return !slices.ContainsFunc(values, func(v any) bool {
		for key := range node {
			if k, ok := parseItemKey(key); ok && k.fields == nil && equalValues(k.value, v) {
				return false
			}
		}
		return true
	})
}

// compareItems compares the items of a list whose items have keys.
func (f *lostFields) compareItems(path []string, applied, object []any, nodes []ownerNode) {
	keys := map[string]bool{}
	for _, n := range nodes {
		for key := range n.fields {
			keys[key] = isItemKey(key)
		}
	}
	found := map[int]bool{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		i := FindItem(applied, key)
		if !keys[key] || i < 0 || found[i] {
			continue
		}
		found[i] = true
		if at := FindItem(object, key); at >= 0 {
			f.compare(append(path, itemToken(object, at, key)), applied[i], object[at], nodesBelow(nodes, key))
		}
	}
	for i, item := range applied {
		if found[i] {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) { // any: the items of a list have the same key fields
			if keys[key] {
				f.add(append(path, missingItemToken(item, i, key)), nil)
				break
			}
		}
	}
}

// add adds a field and the other managers that own it.
func (f *lostFields) add(path []string, nodes []ownerNode) {
	lost := LostField{Path: FormatPointer(path)}
	for _, n := range nodes {
		if n.manager != FieldManager && !slices.Contains(lost.Managers, n.manager) {
			lost.Managers = append(lost.Managers, n.manager)
		}
	}
	slices.Sort(lost.Managers)
	f.found = append(f.found, lost)
}

// nodesBelow returns the nodes at a managedFields key.
func nodesBelow(nodes []ownerNode, key string) []ownerNode {
	var out []ownerNode
	for _, n := range nodes {
		if c, ok := n.fields[key].(map[string]any); ok {
			out = append(out, ownerNode{n.manager, n.ours, c})
		}
	}
	return out
}

func hasItemKeys(nodes []ownerNode) bool {
	return slices.ContainsFunc(nodes, func(n ownerNode) bool {
		for key := range n.fields {
			if isItemKey(key) {
				return true
			}
		}
		return false
	})
}

// itemToken returns the token of a list item: the first field of its managedFields key whose value
// no other item has, else its index.
func itemToken(list []any, i int, key string) string {
	k, _ := parseItemKey(key)
	for _, name := range slices.Sorted(maps.Keys(k.fields)) {
		text, ok := scalarText(k.fields[name])
		s := itemSelector{name, text}
		first := slices.IndexFunc(list, s.matches)
		if ok && first >= 0 && !slices.ContainsFunc(list[first+1:], s.matches) {
			return s.String()
		}
	}
	return strconv.Itoa(i)
}

// missingItemToken returns the token of a list item that the live object does not have. key is the
// managedFields key of another item.
func missingItemToken(item any, i int, key string) string {
	m, _ := item.(map[string]any)
	k, _ := parseItemKey(key)
	for _, name := range slices.Sorted(maps.Keys(k.fields)) {
		if text, ok := scalarText(m[name]); ok {
			return itemSelector{name, text}.String()
		}
	}
	return strconv.Itoa(i)
}
