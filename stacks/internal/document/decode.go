package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/problem"
)

// Lines are the line numbers of the fields of a decoded document, by path such as
// spec.components[2].name.
type Lines map[string]int

// Of returns the line of a field, or of its innermost known parent.
func (l Lines) Of(path string) int {
	for {
		if line, ok := l[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return l[""]
		}
		path = path[:cut]
	}
}

// Decode decodes node into the struct that into points to. Decode reports every key that is not a
// field (by its json tag), that is a duplicate, or whose value has the wrong type. A field with the
// tag dialect:"helm" has Helm values.
func Decode(file string, node *yaml.Node, into any) (Lines, problem.Errors) {
	d := &decoder{converter: converter{file: file}, lines: Lines{}}
	d.decode(node, reflect.ValueOf(into).Elem(), "", 0)
	return d.lines, d.problems
}

type decoder struct {
	converter
	lines    Lines
	problems problem.Errors
}

// report adds a problem. Its message is the path of the field, followed by the formatted text.
func (d *decoder) report(n *yaml.Node, path, format string, args ...any) {
	d.problems = append(d.problems,
		&problem.Error{File: d.file, Line: n.Line, Field: path,
			Message: fmt.Sprintf("field %q %s", path, fmt.Sprintf(format, args...))})
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.nodes++; d.nodes > MaxNodes || depth > MaxDepth {
		d.report(n, path, "is nested too deeply or refers to itself")
		return
	}
	if _, there := d.lines[path]; !there {
		d.lines[path] = n.Line
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if own, ok := v.Addr().Interface().(scalarOrMapping); ok {
		d.decodeScalarOrMapping(n, v, own, path, depth)
		return
	}
	if own, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		d.decodeUnmarshaler(n, own, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path, depth)
	case reflect.Struct:
		d.decodeStruct(n, v, path, depth)
	case reflect.Slice:
		d.decodeList(n, v, path, depth)
	case reflect.Map, reflect.Interface:
		if v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct {
			d.decodeMap(n, v, path, depth)
			return
		}
		d.decodeFreeForm(n, v, path)
	default:
		d.decodeScalar(n, v, path)
	}
}

// scalarOrMapping is a struct that may also be written as a scalar, which is one of its fields:
// ScalarField returns a pointer to it.
type scalarOrMapping interface{ ScalarField() any }

// decodeScalarOrMapping decodes a scalar, or a mapping with another field.
func (d *decoder) decodeScalarOrMapping(n *yaml.Node, v reflect.Value, own scalarOrMapping, path string, depth int) {
	_, names := FieldsOf(v.Type())
	scalar := reflect.ValueOf(own.ScalarField()).Elem()
	allowed := typeName(scalar.Kind()) + " or a mapping with " + strings.Join(names, ", ")
	isLike := func(key *yaml.Node) bool { return problem.Nearest(key.Value, names) != "" }
	switch {
	case n.Kind == yaml.ScalarNode:
		d.decodeScalar(n, scalar, path)
	case n.Kind != yaml.MappingNode:
		d.report(n, path, "must be %s, not %s", allowed, KindName(n))
	case len(n.Content) == 0:
		d.report(n, path, "must be %s, not an empty mapping", allowed)
	case !slices.ContainsFunc(n.Content, isLike):
		d.report(n, path, "must be %s, not a mapping with %s", allowed, n.Content[0].Value)
	default:
		d.decodeStruct(n, v, path, depth)
	}
}

// decodeMap decodes a mapping whose values are structs.
func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.report(n, path, "must be a mapping, not %s", KindName(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field := Join(path, key.Value)
		name := reflect.ValueOf(key.Value)
		if key.Kind != yaml.ScalarNode {
			d.report(key, field, "is not known")
			continue
		}
		if v.MapIndex(name).IsValid() {
			d.report(key, field, "is set twice")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(n.Content[i+1], value, field, depth+1)
		v.SetMapIndex(name, value)
	}
}

// freeForm returns the value of a node with arbitrary keys. It returns false after an error, which
// it adds to the problems.
func (d *decoder) freeForm(n *yaml.Node, path string) (any, bool) {
	value, err := d.value(n, 0)
	for _, e := range problem.Flatten(err) {
		d.problems = append(d.problems,
			&problem.Error{File: d.file, Line: e.Line, Field: path,
				Message: fmt.Sprintf("field %q: %s", path, e.Message)})
	}
	return value, err == nil
}

// decodeUnmarshaler decodes types with their own UnmarshalJSON, such as durations.
func (d *decoder) decodeUnmarshaler(n *yaml.Node, into json.Unmarshaler, path string) {
	value, ok := d.freeForm(n, path)
	if !ok {
		return
	}
	raw, err := json.Marshal(value)
	if err == nil {
		err = into.UnmarshalJSON(raw)
	}
	_, isString := value.(string)
	switch {
	case err == nil:
	case isString:
		d.report(n, path, "is invalid: %s", err)
	default:
		d.report(n, path, "cannot be %s", KindName(n))
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.report(n, path, "must be a mapping, not %s", KindName(n))
		return
	}
	fields, names := FieldsOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		field := Join(path, name)
		if first, twice := seen[name]; twice {
			d.report(key, field, "is set twice, first on line %d", first)
			continue
		}
		seen[name] = key.Line
		index, known := fields[name]
		if !known || key.Kind != yaml.ScalarNode {
			d.report(key, field, "is not known")
			d.problems[len(d.problems)-1].Suggestion = problem.Nearest(name, names)
			continue
		}
		d.lines[field] = key.Line
		before := d.dialect
		if v.Type().FieldByIndex(index).Tag.Get("dialect") == "helm" {
			d.dialect = Helm
		}
		d.decode(value, v.FieldByIndex(index), field, depth+1)
		d.dialect = before
	}
}

func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.report(n, path, "must be a list, not %s", KindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

// decodeFreeForm decodes a field with arbitrary keys, such as values and schemas.
func (d *decoder) decodeFreeForm(n *yaml.Node, v reflect.Value, path string) {
	value, ok := d.freeForm(n, path)
	if !ok {
		return
	}
	if v.Kind() == reflect.Interface {
		v.Set(reflect.ValueOf(value))
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		d.report(n, path, "must be a mapping, not %s", KindName(n))
		return
	}
	if v.Type().Elem().Kind() != reflect.String {
		v.Set(reflect.ValueOf(m))
		return
	}
	out := make(map[string]string, len(m))
	for k, item := range m {
		s, ok := item.(string)
		if !ok {
			d.report(n, Join(path, k), "must be a string")
		}
		out[k] = s
	}
	v.Set(reflect.ValueOf(out))
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.report(n, path, "must be %s, not %s", typeName(v.Kind()), KindName(n))
		return
	}
	if v.Kind() == reflect.String && n.ShortTag() == "!!str" {
		v.SetString(n.Value)
		return
	}
	value, err := d.scalar(n)
	if err != nil {
		d.report(n, path, "must be %s", typeName(v.Kind()))
		return
	}
	switch value := value.(type) {
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(value)
			return
		}
	case int64:
		if v.CanInt() && !v.OverflowInt(value) {
			v.SetInt(value)
			return
		}
	}
	hint := ""
	if v.Kind() == reflect.String {
		hint = ": put it in quotes"
	}
	d.report(n, path, "must be %s, not %s%s", typeName(v.Kind()), KindName(n), hint)
}

func typeName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number"
}

// FieldsOf returns the indexes of the fields of a struct by JSON name, and the names in declaration
// order.
func FieldsOf(t reflect.Type) (map[string][]int, []string) {
	fields := map[string][]int{}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			inner, innerNames := FieldsOf(f.Type)
			for _, innerName := range innerNames {
				fields[innerName] = append(slices.Clone(f.Index), inner[innerName]...)
			}
			names = append(names, innerNames...)
			continue
		}
		if !f.IsExported() || name == "-" || name == "" {
			continue
		}
		fields[name] = f.Index
		names = append(names, name)
	}
	return fields, names
}

// Join appends a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
