package manifest

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// InitialField is a field that only the first release of a chart sets: later releases leave it to
// whoever changes it.
type InitialField struct {
	// path has the keys of mappings and the indexes of lists.
	path  []any
	value any
}

// SetInitialFields sets Initial of the objects of a first release. upgrade are the objects of the
// release that would follow it.
func SetInitialFields(objects, upgrade []*Object) {
	next := make(map[string]*Object, len(upgrade))
	for _, o := range upgrade {
		next[o.ID()] = o
	}
	for _, o := range objects {
		if later := next[o.ID()]; later != nil {
			o.Initial = appendInitial(nil, nil, o.Value, later.Value)
		}
	}
}

// appendInitial appends the fields of value that later lacks. An item of a list is compared with
// that of its name, or of its index; lists that differ in more are one value.
func appendInitial(out []InitialField, path []any, value, later any) []InitialField {
	switch value := value.(type) {
	case map[string]any:
		next, _ := later.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			field := append(slices.Clip(path), key)
			_, isMap := value[key].(map[string]any)
			switch at, there := next[key]; {
			case there && at != nil, isMap && !there:
				out = appendInitial(out, field, value[key], at)
			case value[key] != nil:
				out = append(out, InitialField{path: field, value: value[key]})
			}
		}
	case []any:
		next, _ := later.([]any)
		for i, item := range value {
			if at, found := counterpart(value, next, i); found {
				out = appendInitial(out, append(slices.Clip(path), i), item, at)
			}
		}
	}
	return out
}

// counterpart returns the item of the second list that is item i of the first one.
func counterpart(items, others []any, i int) (any, bool) {
	item, isMap := items[i].(map[string]any)
	if !isMap {
		return nil, false
	}
	if name, named := item["name"].(string); named {
		for _, o := range others {
			if other, ok := o.(map[string]any); ok && other["name"] == name {
				return other, true
			}
		}
		return nil, false
	}
	if len(items) != len(others) {
		return nil, false
	}
	return others[i], true
}

// InitialPointers returns JSON pointers to the initial fields of an object. Those that an override
// changed are not among them.
func (o *Object) InitialPointers() (out []string) {
	for _, f := range o.Initial {
		if value, there := fieldAt(o.Value, f.path); there && reflect.DeepEqual(value, f.value) {
			out = append(out, pointerTo(f.path))
		}
	}
	return out
}

func fieldAt(value any, path []any) (any, bool) {
	for _, key := range path {
		switch key := key.(type) {
		case string:
			fields, _ := value.(map[string]any)
			next, there := fields[key]
			if !there {
				return nil, false
			}
			value = next
		case int:
			items, _ := value.([]any)
			if key >= len(items) {
				return nil, false
			}
			value = items[key]
		}
	}
	return value, true
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointerTo(path []any) string {
	var b strings.Builder
	for _, key := range path {
		b.WriteByte('/')
		switch key := key.(type) {
		case string:
			b.WriteString(pointerEscapes.Replace(key))
		case int:
			b.WriteString(strconv.Itoa(key))
		}
	}
	return b.String()
}
