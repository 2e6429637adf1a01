package kind

import (
	"reflect"
	"strings"
)

// fieldNames returns the JSON names of the fields of a struct, with those of its inlined structs.
func fieldNames(v any) (out []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case options == "inline" || t.Field(i).Anonymous:
			out = append(out, fieldNames(reflect.Zero(t.Field(i).Type).Interface())...)
		case name != "" && name != "-":
			out = append(out, name)
		}
	}
	return out
}
