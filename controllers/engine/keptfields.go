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

	"github.com/ksctl/gitops/controllers/live"
)

// keptFields is what others may change in an object, whatever it says itself.
func keptFields(u *unstructured.Unstructured, ignore []string) ([]live.KeptField, error) {
	b, err := json.Marshal(ignore)
	if err != nil {
		return nil, err
	}
	u = u.DeepCopy()
	ann := u.GetAnnotations()
	if ann == nil {
		ann = map[string]string{}
	}
	ann[live.IgnoreAnnotation] = string(b)
	u.SetAnnotations(ann)
	o, err := live.Project(u)
	if err != nil {
		return nil, err
	}
	return withheld(u, o.Kept)
}

// withheld fills in the values that a projection leaves out.
func withheld(u *unstructured.Unstructured, kept []live.KeptField) ([]live.KeptField, error) {
	for i := range kept {
		if !kept[i].Withheld {
			continue
		}
		v, err := live.ValueAt(u, kept[i].Path)
		if err != nil {
			return nil, err
		}
		kept[i].Value = v
	}
	return kept, nil
}

// needsRead is true when the index does not tell what must be kept: the paths
// were others when the object was applied last, or it does not hold a value.
func needsRead(it *Item, l *live.Object) bool {
	have := map[string]bool{}
	for _, k := range l.Kept {
		have[k.Path] = true
		if k.Withheld && sent(k) {
			return true
		}
		if !slices.Contains(it.Ignore, k.Path) && (k.Path != replicas || !live.CountsReplicas(l.Owned)) {
			return true
		}
	}
	return slices.ContainsFunc(it.Ignore, func(p string) bool { return !have[p] })
}

// replicas are kept without being asked for once somebody scaled.
const replicas = "/spec/replicas"

// sent is true for a field that would be lost if it were left out of an apply.
func sent(k live.KeptField) bool { return k.Ours && !k.Others }

// leaveOthers takes the fields out of an object that are others' to change, and
// gives those that would be lost by that the value they have. It reports whether
// the result holds only while nobody else writes: it has such a value, or
// replicas that somebody may be about to scale.
func leaveOthers(obj map[string]any, kept []live.KeptField) (racing bool, err error) {
	var leave [][]string
	for _, k := range kept {
		path, err := live.ParsePointer(k.Path)
		if err != nil {
			return false, fmt.Errorf("ignored path %s: %w", k.Path, err)
		}
		if !sent(k) {
			leave = append(leave, path)
			continue
		}
		var wrapped [1]any
		if err := utiljson.Unmarshal(append(append([]byte("["), k.Value...), ']'), &wrapped); err != nil {
			return false, fmt.Errorf("value of ignored path %s: %w", k.Path, err)
		}
		setAt(obj, path, wrapped[0])
		racing = true
	}
	// The last items of a list first: the others keep their places.
	slices.SortFunc(leave, func(a, b []string) int { return slices.CompareFunc(b, a, compareTokens) })
	for _, path := range leave {
		removeAt(obj, path)
	}
	_, scalable, err := unstructured.NestedFieldNoCopy(obj, "spec", "replicas")
	return racing || (err == nil && scalable), nil
}

// compareTokens orders the places of a list by number.
func compareTokens(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return cmp.Compare(x, y)
}

// setAt sets the value at a path. An item of a list that is not wanted is not made.
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

// removeAt removes the value at a path, and returns what is left.
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
