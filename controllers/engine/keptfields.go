package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// keptFields returns the fields of an object that others are allowed to change: the ignored paths,
// independent of the object's own annotation, and replicas.
func keptFields(u *unstructured.Unstructured, ignore []string) ([]live.KeptField, error) {
	b, err := json.Marshal(ignore)
	if err != nil {
		return nil, err
	}
	u = u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, string(b), "metadata", "annotations",
		live.IgnoreAnnotation); err != nil {
		return nil, err
	}
	o, err := live.Project(u)
	if err != nil {
		return nil, err
	}
	for i := range o.KeptFields {
		// The projection leaves out some values, such as those of Secrets.
		if k := &o.KeptFields[i]; k.Withheld {
			if k.Value, err = live.ValueAt(u, cmp.Or(k.At, k.Path)); err != nil {
				return nil, err
			}
		}
	}
	return o.KeptFields, nil
}

// mustReadKeptFields is true when the index does not know all fields to keep: the object was last
// applied with other ignored paths, or the index withholds a value.
func mustReadKeptFields(it *plan.Item, l *live.Object) bool {
	have := map[string]bool{}
	for _, k := range l.KeptFields {
		have[k.Path] = true
		if k.Withheld && mustSend(k) {
			return true
		}
		if !slices.Contains(it.Ignore, k.Path) && (k.Path != replicasPath || !live.TracksReplicas(l.OwnedHash)) {
			return true
		}
	}
	return slices.ContainsFunc(it.Ignore, func(p string) bool { return !have[p] })
}

// replicasPath is the path of replicas. They are kept without an ignore rule after another client
// has scaled the object.
const replicasPath = "/spec/replicas"

// mustSend is true for a field that the API server would remove if an apply omitted it: only we own
// it.
func mustSend(k live.KeptField) bool { return k.Ours && !k.Others }

// mergeKeptFields removes the kept fields from a manifest, and sets those that an apply must not
// omit to their live value. needsVersion is true when the result is valid only for the
// resourceVersion that was read: it has a live value, or replicas that another client may be about
// to scale.
func mergeKeptFields(obj map[string]any, kept []live.KeptField) (needsVersion bool, err error) {
	var omit [][]string
	for _, k := range kept {
		path, err := live.ParsePointer(cmp.Or(k.At, k.Path))
		if err != nil {
			return false, fmt.Errorf("parsing ignored path %s: %w", k.Path, err)
		}
		if !findItems(obj, path) {
			continue
		}
		if !mustSend(k) {
			omit = append(omit, path)
			continue
		}
		var wrapped [1]any
		if err := utiljson.Unmarshal(append(append([]byte("["), k.Value...), ']'), &wrapped); err != nil {
			return false, fmt.Errorf("parsing the value of ignored path %s: %w", k.Path, err)
		}
		setAt(obj, path, wrapped[0])
		needsVersion = true
	}
	// From the last item of a list to the first, so that the indexes of the others stay valid.
	slices.SortFunc(omit, func(a, b []string) int { return slices.CompareFunc(b, a, compareTokens) })
	for _, path := range omit {
		removeAt(obj, path)
	}
	_, scalable, err := unstructured.NestedFieldNoCopy(obj, "spec", "replicas")
	return needsVersion || (err == nil && scalable), nil
}

// findItems replaces the tokens of list items in a path by their indexes in a manifest. It returns
// false if the manifest does not have an item.
func findItems(v any, path []string) bool {
	for i, t := range path {
		switch c := v.(type) {
		case map[string]any:
			v = c[t]
		case []any:
			n := live.FindItem(c, t)
			if n < 0 {
				return false
			}
			path[i], v = strconv.Itoa(n), c[n]
		default:
			return !slices.ContainsFunc(path[i:], live.IsItemToken)
		}
	}
	return true
}

// compareTokens compares two tokens of JSON pointers; list indexes by their number.
func compareTokens(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return cmp.Compare(x, y)
}

// setAt sets the value at a path. It creates missing objects, but no list items.
func setAt(v any, path []string, value any) {
	for i, t := range path {
		last := i == len(path)-1
		switch c := v.(type) {
		case map[string]any:
			if last {
				c[t] = value
				return
			}
			if c[t] == nil {
				if _, err := strconv.Atoi(path[i+1]); err == nil {
					return
				}
				c[t] = map[string]any{}
			}
			v = c[t]
		case []any:
			n, err := strconv.Atoi(t)
			if err != nil || n < 0 || n >= len(c) {
				return
			}
			if last {
				c[n] = value
				return
			}
			v = c[n]
		default:
			return
		}
	}
}

// removeAt removes the value at a path, and returns the rest.
func removeAt(v any, path []string) any {
	switch c := v.(type) {
	case map[string]any:
		child, ok := c[path[0]]
		switch {
		case ok && len(path) == 1:
			delete(c, path[0])
		case ok:
			c[path[0]] = removeAt(child, path[1:])
		}
	case []any:
		n, err := strconv.Atoi(path[0])
		switch {
		case err != nil || n < 0 || n >= len(c):
		case len(path) == 1:
			return append(c[:n:n], c[n+1:]...)
		default:
			c[n] = removeAt(c[n], path[1:])
		}
	}
	return v
}
