package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// Difference is a field that the former tool and the stack render differently.
type Difference struct {
	// Of is the object that is converted, and Object the rendered one.
	Of, Object string
	// Field is a JSON pointer; empty if only one side renders the object.
	Field string
	// Message says what differs, without values: the object may be a Secret.
	Message string
}

// DifferenceError is the error of a conversion that does not render the same objects.
type DifferenceError []Difference

// Error lists the differences, one a line.
func (e DifferenceError) Error() string {
	lines := make([]string, 0, len(e)+1)
	for _, d := range e {
		line := d.Of + ": " + d.Object
		if d.Field != "" {
			line += " " + d.Field
		}
		lines = append(lines, line+" "+d.Message)
	}
	return "nothing is written, because the stacks would not render the same objects:\n" + strings.Join(lines, "\n")
}

// objectSet has rendered objects by group, kind, namespace and name.
type objectSet map[string]map[string]any

// runsAtRemoval matches the hooks of a chart that an install does not apply, or that are tests.
var runsAtRemoval = regexp.MustCompile(`^\s*(test|test-success|test-failure|(pre|post)-(delete|rollback))` +
	`\s*(,\s*(test|test-success|test-failure|(pre|post)-(delete|rollback))\s*)*$`)

// formerObjects normalizes the objects of the former tool as the package documentation says.
func formerObjects(objects []map[string]any, namespace string) (objectSet, error) {
	all := make([]*manifest.Object, 0, len(objects))
	for _, value := range objects {
		o, err := manifest.New("", 0, value)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	kinds := manifest.ClusterKindsOf(all)
	out := objectSet{}
	for _, o := range all {
		annotations, _ := nested(o.Value, "metadata", "annotations").(map[string]any)
		if events, _ := annotations[manifest.HookAnnotation].(string); runsAtRemoval.MatchString(events) {
			continue
		}
		kinds.SetNamespace(o, namespace)
		manifest.Normalize(o)
		value, err := asJSON(o.Value)
		if err != nil {
			return nil, err
		}
		out[o.String()] = value
	}
	return out, nil
}

// renderedObjects returns the objects of a rendered stack.
func renderedObjects(result *stacks.Result) (objectSet, error) {
	out := objectSet{}
	for _, c := range result.Components {
		for _, o := range c.Objects {
			if o.Generated || o.Hook != nil && o.Hook.Phase == stacks.HookInactive {
				continue
			}
			value, err := decodeJSON(o.Manifest)
			if err != nil {
				return nil, err
			}
			if o.Hook != nil && o.Hook.TTLSeconds != nil { // it is kept by the controller
				if spec, ok := value["spec"].(map[string]any); ok {
					spec["ttlSecondsAfterFinished"] = json.Number(fmt.Sprint(*o.Hook.TTLSeconds))
				}
			}
			object := manifest.Object{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
			out[object.String()] = value
		}
	}
	return out, nil
}

// compareObjects compares what the former tool renders, in two renders, with what the stack
// renders.
func compareObjects(of string, former, again, now objectSet) (out []Difference) {
	for _, name := range slices.Sorted(maps.Keys(former)) {
		got, there := now[name]
		if !there {
			out = append(out, Difference{of, name, "", "is missing in the stack"})
			continue
		}
		for _, field := range differingFields(nil, "", former[name], got, again[name]) {
			out = append(out, Difference{of, name, field, "differs"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if former[name] == nil {
			out = append(out, Difference{of, name, "", "is only in the stack"})
		}
	}
	return out
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// differingFields appends JSON pointers to the fields that differ. Fields that also differ from a
// second render are generated.
func differingFields(out []string, at string, former, now, again any) []string {
	switch f := former.(type) {
	case map[string]any:
		n, isMap := now.(map[string]any)
		a, _ := again.(map[string]any)
		if !isMap {
			break
		}
		keys := slices.Concat(slices.Collect(maps.Keys(f)), slices.Collect(maps.Keys(n)))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			_, inFormer := f[key]
			_, inNow := n[key]
			field := at + "/" + pointerEscapes.Replace(key)
			if inFormer != inNow {
				out = append(out, field)
				continue
			}
			out = differingFields(out, field, f[key], n[key], a[key])
		}
		return out
	case []any:
		n, isList := now.([]any)
		a, _ := again.([]any)
		if !isList || len(f) != len(n) || len(f) != len(a) {
			break
		}
		for i := range f {
			out = differingFields(out, fmt.Sprintf("%s/%d", at, i), f[i], n[i], a[i])
		}
		return out
	}
	if reflect.DeepEqual(former, now) || !reflect.DeepEqual(former, again) {
		return out
	}
	return append(out, at)
}

func asJSON(value map[string]any) (map[string]any, error) {
	raw, err := manifest.Canonical(value)
	if err != nil {
		return nil, err
	}
	return decodeJSON(raw)
}

// decodeJSON keeps numbers as they are written.
func decodeJSON(raw []byte) (map[string]any, error) {
	var out map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err := dec.Decode(&out)
	return out, err
}

func nested(value any, path ...string) any {
	for _, key := range path {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}
