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
	// path has the keys of mappings and the indexes of lists. pointer is the ignored path: it has
	// [name=x] in place of the index of an item with a name.
	path    []any
	pointer string
	value   any
}

// child returns a field of a field, or an item of a list with its token in the pointer.
func (f InitialField) child(key any, token string) InitialField {
	return InitialField{path: append(slices.Clip(f.path), key),
		pointer: f.pointer + "/" + pointerEscapes.Replace(token)}
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
			o.Initial = appendInitial(nil, InitialField{}, o.Value, later.Value)
		}
	}
}

// appendInitial appends the fields of value that later lacks. An item of a list is compared with
// that of its name, or of its index; lists that differ in more are one value.
func appendInitial(out []InitialField, at InitialField, value, later any) []InitialField {
	switch value := value.(type) {
	case map[string]any:
		next, _ := later.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			field := at.child(key, key)
			field.value = value[key]
			_, isMap := value[key].(map[string]any)
			switch other, there := next[key]; {
			case there && other != nil, isMap && !there:
				out = appendInitial(out, field, value[key], other)
			case value[key] != nil:
				out = append(out, field)
			}
		}
	case []any:
		next, _ := later.([]any)
		for i, item := range value {
			if other, token := counterpart(value, next, i); token != "" {
				out = appendInitial(out, at.child(i, token), item, other)
			}
		}
	}
	return out
}

// counterpart returns the item of the second list that is item i of the first one, and the token of
// the item in a pointer; an empty token if there is none.
func counterpart(items, others []any, i int) (other any, token string) {
	item, isMap := items[i].(map[string]any)
	name, named := item["name"].(string)
	switch {
	case !isMap, !named && len(items) != len(others):
		return nil, ""
	case !named:
		return others[i], strconv.Itoa(i)
	}
	for _, o := range others {
		if other, ok := o.(map[string]any); ok && other["name"] == name {
			return other, "[name=" + name + "]"
		}
	}
	return nil, ""
}

// InitialPointers returns JSON pointers to the initial fields of an object. Those that an override
// changed are not among them.
func (o *Object) InitialPointers() (out []string) {
	for _, f := range o.Initial {
		if value, there := fieldAt(o.Value, f.path); there && reflect.DeepEqual(value, f.value) {
			out = append(out, f.pointer)
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
