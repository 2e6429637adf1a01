package live

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Differences returns the JSON pointers of the fields that differ in two versions of an object,
// except for those in its metadata and its status. It returns the outermost field that only one
// version has. A list item is [field=value] where a field of its key is unique in the list, else
// its index.
func Differences(before, after *unstructured.Unstructured) []string {
	nodes := slices.Concat(ownerNodes(before), ownerNodes(after))
	d := differences{}
	for _, name := range keysOf(before.Object, after.Object) {
		if name != "metadata" && name != "status" {
			d.compare([]string{name}, before.Object[name], after.Object[name], nodesBelow(nodes, "f:"+name))
		}
	}
	return d.found
}

type differences struct{ found []string }

// compare compares a value.
func (d *differences) compare(path []string, before, after any, nodes []ownerNode) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			for _, name := range keysOf(b, a) {
				d.compare(append(path, name), b[name], a[name], nodesBelow(nodes, "f:"+name))
			}
			return
		}
	case []any:
		if a, ok := after.([]any); ok {
			d.compareItems(path, b, a, nodes)
			return
		}
	}
	d.found = append(d.found, FormatPointer(path))
}

// compareItems compares the items of a list: by their keys, the others by their position among
// those without.
func (d *differences) compareItems(path []string, before, after []any, nodes []ownerNode) {
	keys := map[string]bool{}
	for _, n := range nodes {
		for key := range n.fields {
			if isItemKey(key) {
				keys[key] = true
			}
		}
	}
	seenBefore, seenAfter := map[int]bool{}, map[int]bool{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		b, a := FindItem(before, key), FindItem(after, key)
		switch {
		case a < 0 && b < 0, a >= 0 && seenAfter[a], b >= 0 && seenBefore[b]:
			continue
		case a < 0:
			d.found = append(d.found, FormatPointer(append(path, itemToken(before, b, key))))
		case b < 0:
			d.found = append(d.found, FormatPointer(append(path, itemToken(after, a, key))))
		default:
			d.compare(append(path, itemToken(before, b, key)), before[b], after[a], nodesBelow(nodes, key))
		}
		seenBefore[b], seenAfter[a] = true, true
	}
	restBefore, restAfter := unseen(before, seenBefore), unseen(after, seenAfter)
	if len(restBefore) != len(restAfter) {
		d.found = append(d.found, FormatPointer(path))
		return
	}
	for i, at := range restBefore {
		d.compare(append(path, strconv.Itoa(at)), before[at], after[restAfter[i]], nil)
	}
}

// unseen returns the indexes of the items that were not seen.
func unseen(list []any, seen map[int]bool) (out []int) {
	for i := range list {
		if !seen[i] {
			out = append(out, i)
		}
	}
	return out
}

// keysOf returns the keys of two objects, sorted.
func keysOf(a, b map[string]any) []string {
	out := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(out)
	return slices.Compact(out)
}
