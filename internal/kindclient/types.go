package kindclient

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// Packages of the types of fields, by the name under which types.go imports them.
var fieldPackages = map[string]string{
	"apiextensionsv1": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"intstr":          "k8s.io/apimachinery/pkg/util/intstr",
}

const (
	anyValue    = "apiextensionsv1.JSON"
	intOrString = "intstr.IntOrString"
)

// goTypes are the Go types of schemas.
type goTypes struct {
	// declared are the declarations of structs: first those that have the others in them.
	declared []string
	// names are taken by declarations.
	names map[string]bool
	// imported are keys of fieldPackages.
	imported map[string]bool
}

// goType is the Go type of a schema.
type goType struct {
	name string
	form form
}

// form is how a Go type has no value.
type form int

const (
	scalar   form = iota // a zero value that may be meant: "", 0, false
	nilable              // nil, as a slice and a map
	compound             // not without a pointer to it
)

// typeOf returns the type of a schema. A struct gets the name, which the schema at path has in
// comments.
func (g *goTypes) typeOf(name, path string, s *apiextensionsv1.JSONSchemaProps) goType {
	switch {
	case s.XIntOrString:
		return g.importedType(intOrString)
	case ptr.Deref(s.XPreserveUnknownFields, false) || s.XEmbeddedResource:
		return g.importedType(anyValue)
	}
	switch s.Type {
	case "string":
		return goType{"string", scalar}
	case "boolean":
		return goType{"bool", scalar}
	case "number":
		return goType{"float64", scalar}
	case "integer":
		if s.Format == "int32" {
			return goType{"int32", scalar}
		}
		return goType{"int64", scalar}
	case "array":
		if s.Items != nil && s.Items.Schema != nil {
			return goType{"[]" + g.element(name+"Item", path+"[]", s.Items.Schema), nilable}
		}
	case "object":
		return g.objectType(name, path, s)
	}
	return g.importedType(anyValue)
}

// objectType returns the type of a schema of objects: a map or a struct. Where Go can't have a
// field with the name of a property, it is the type of any value.
func (g *goTypes) objectType(name, path string, s *apiextensionsv1.JSONSchemaProps) goType {
	if more := s.AdditionalProperties; more != nil && more.Schema != nil {
		return goType{"map[string]" + g.element(name+"Value", path+".*", more.Schema), nilable}
	} else if more != nil && more.Allows {
		return goType{"map[string]" + g.importedType(anyValue).name, nilable}
	}
	for property := range s.Properties {
		if !fitsInTag(property) {
			return g.importedType(anyValue)
		}
	}
	name = uniqueName(g.names, name)
	g.declare(name, path, s, nil)
	return goType{name, compound}
}

// element returns the type of the items of a list, or of the values of a map.
func (g *goTypes) element(name, path string, s *apiextensionsv1.JSONSchemaProps) string {
	t := g.typeOf(name, path, s)
	if s.Nullable && t.form != nilable {
		return "*" + t.name
	}
	return t.name
}

func (g *goTypes) importedType(name string) goType {
	alias, _, _ := strings.Cut(name, ".")
	g.imported[alias] = true
	return goType{name, compound}
}

// declare declares a struct with the properties of a schema, after embedded ones.
func (g *goTypes) declare(name, path string, s *apiextensionsv1.JSONSchemaProps, embedded []string) {
	at := len(g.declared)
	g.declared = append(g.declared, "") // before the types of its fields
	var out strings.Builder
	comment(&out, name+" is "+path+".")
	if s.Description != "" {
		out.WriteString("//\n")
		comment(&out, s.Description)
	}
	fmt.Fprintf(&out, "type %s struct {\n", name)
	taken := map[string]bool{"DeepCopy": true, "DeepCopyInto": true} // methods
	for _, e := range embedded {
		fmt.Fprintf(&out, "%s `json:\",inline\"`\n", e)
		taken[e[strings.LastIndex(e, ".")+1:]] = true
	}
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[property]
		field := uniqueName(taken, goName(property))
		t := g.typeOf(name+field, path+"."+property, &p)
		optional := !slices.Contains(s.Required, property) || p.Default != nil
		pointer, tag := "", property
		if needsPointer(t, &p, optional) {
			pointer = "*"
		}
		if optional {
			tag += ",omitempty"
		} else if tag == "-" {
			tag = "-," // "-" alone leaves the field out
		}
		comment(&out, p.Description)
		fmt.Fprintf(&out, "%s %s%s `json:\"%s\"`\n", field, pointer, t.name, tag)
	}
	out.WriteString("}\n")
	g.declared[at] = out.String()
}

// needsPointer reports whether a field is a pointer: it may be null, or the zero value of its type
// differs from no value.
func needsPointer(t goType, s *apiextensionsv1.JSONSchemaProps, optional bool) bool {
	switch {
	case t.form == nilable:
		return optional && s.Default != nil && !isZero(s.Default.Raw)
	case s.Nullable:
		return true
	case t.form == compound:
		return optional
	}
	return optional && (s.Default == nil || !isZero(s.Default.Raw)) && allowsZero(s)
}

// isZero reports whether a JSON value is the zero value of its type.
func isZero(raw []byte) bool {
	return slices.ContainsFunc([]string{"null", `""`, "0", "false", "[]", "{}"},
		func(zero string) bool { return string(bytes.TrimSpace(raw)) == zero })
}

// allowsZero reports whether the zero value of a scalar may be valid.
func allowsZero(s *apiextensionsv1.JSONSchemaProps) bool {
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(v apiextensionsv1.JSON) bool { return isZero(v.Raw) }) {
		return false
	}
	if least := s.Minimum; least != nil && (*least > 0 || *least == 0 && s.ExclusiveMinimum) {
		return false
	}
	if most := s.Maximum; most != nil && (*most < 0 || *most == 0 && s.ExclusiveMaximum) {
		return false
	}
	return ptr.Deref(s.MinLength, 0) == 0
}

// commentWidth is the width of comments, without their slashes.
const commentWidth = 96

// comment writes a comment, in lines. No line begins with +: the generators would read it as a
// marker.
func comment(out *strings.Builder, text string) {
	line := ""
	for _, part := range strings.Fields(strings.TrimLeft(text, "+ \n")) {
		if len(line)+len(part) > commentWidth && !strings.HasPrefix(part, "+") {
			out.WriteString("//" + line + "\n")
			line = ""
		}
		line += " " + part
	}
	if line != "" {
		out.WriteString("//" + line + "\n")
	}
}
