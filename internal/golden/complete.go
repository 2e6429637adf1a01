package golden

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Complete fails the test for each exported field that a value leaves unset, so that its golden
// file shows all of them. Slices and maps need an element: the first of a slice and all of a map
// are checked. A pointer to a bool, a number or a string is set whatever it points to. A type
// that writes its own JSON, such as a time, a quantity or raw JSON, is checked as a whole.
func Complete(t *testing.T, value any) {
	t.Helper()
	for _, path := range unset(reflect.ValueOf(value), strings.TrimLeft(fmt.Sprintf("%T", value), "*")) {
		t.Errorf("%s is not set, so the golden file does not show it", path)
	}
}

var writers = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}

// unset returns the paths below a value that are not set.
func unset(v reflect.Value, path string) []string {
	if !v.IsValid() {
		return []string{path}
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer || kind == reflect.Interface:
		if to := v.Elem().Kind(); kind == reflect.Pointer &&
			(to >= reflect.Bool && to <= reflect.Complex128 || to == reflect.String) {
			return nil // a scalar
		}
		return unset(v.Elem(), path)
	case writesItself(v.Type()):
	case kind == reflect.Struct:
		return unsetFields(v, path)
	case kind == reflect.Slice || kind == reflect.Array:
		if v.Len() > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			return unset(v.Index(0), path+"[0]")
		}
		if v.Len() > 0 {
			return nil
		}
		return []string{path}
	case kind == reflect.Map:
		return unsetEntries(v, path)
	}
	if v.IsZero() {
		return []string{path}
	}
	return nil
}

func unsetFields(v reflect.Value, path string) (out []string) {
	exported := false
	for i := range v.NumField() {
		f := v.Type().Field(i)
		// JSON has the exported fields of an embedded struct, whatever the name of its type.
		if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		exported = true
		out = append(out, unset(v.Field(i), path+"."+f.Name)...)
	}
	if !exported && v.IsZero() {
		out = append(out, path)
	}
	return out
}

func unsetEntries(v reflect.Value, path string) (out []string) {
	if v.Len() == 0 {
		return []string{path}
	}
	for entries := v.MapRange(); entries.Next(); {
		out = append(out, unset(entries.Value(), fmt.Sprintf("%s[%v]", path, entries.Key()))...)
	}
	slices.Sort(out)
	return out
}

func writesItself(t reflect.Type) bool {
	return slices.ContainsFunc(writers,
		func(w reflect.Type) bool { return t.Implements(w) || reflect.PointerTo(t).Implements(w) })
}
