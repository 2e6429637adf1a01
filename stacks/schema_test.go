package stacks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/schema"
)

// publishedSchema returns the parsed published schema.
func publishedSchema(t testing.TB) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(schema.Stack, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// resolveRef follows a reference within the schema.
func resolveRef(doc, s map[string]any) map[string]any {
	ref, ok := s["$ref"].(string)
	if !ok {
		return s
	}
	return asObject(asObject(doc["definitions"])[strings.TrimPrefix(ref, "#/definitions/")])
}

// asObject returns v as a map, or nil if it is not a map.
func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// TestSchemaAgreesWithTypes compares the published schema with the Go types, field by field.
func TestSchemaAgreesWithTypes(t *testing.T) {
	doc := publishedSchema(t)
	var compare func(path string, typ reflect.Type, s map[string]any)
	compare = func(path string, typ reflect.Type, s map[string]any) {
		s = resolveRef(doc, s)
		if typ == reflect.TypeFor[Text]() || typ == reflect.TypeFor[Number]() {
			if both, _ := s["anyOf"].([]any); len(both) != 2 ||
				asObject(both[1])["$ref"] != "#/definitions/expression" {
				t.Errorf("%s: the schema must allow a scalar or an expression", path)
			}
			return
		}
		want := ""
		switch typ.Kind() {
		case reflect.Pointer:
			compare(path, typ.Elem(), s)
			return
		case reflect.Interface:
			return // several types
		case reflect.String:
			want = "string"
		case reflect.Bool:
			want = "boolean"
		case reflect.Int32:
			want = "integer"
		case reflect.Slice:
			want = "array"
			compare(path+"[]", typ.Elem(), asObject(s["items"]))
		case reflect.Map:
			want = "object"
		case reflect.Struct:
			want = "object"
			_, names := document.FieldsOf(typ)
			slices.Sort(names)
			if have := values.Properties(s); !slices.Equal(have, names) {
				t.Errorf("%s: the schema has %v, the type has %v", path, have, names)
			}
			if s["additionalProperties"] != false {
				t.Errorf("%s: the schema must reject unknown fields", path)
			}
			for f := range typ.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if sub := asObject(asObject(s["properties"])[name]); sub != nil {
					compare(document.Join(path, name), f.Type, sub)
				}
			}
		}
		if s["type"] != want {
			t.Errorf("%s: the schema has type %v, the Go type is %s", path, s["type"], want)
		}
	}
	compare("", reflect.TypeFor[Definition](), doc)
}

// TestSchemaAgreesWithLoad validates the stack files of the tests with the published schema, so
// that an editor does not mark a stack file that Load accepts.
func TestSchemaAgreesWithLoad(t *testing.T) {
	compiled, err := values.Compile(publishedSchema(t), values.AsWritten)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	err = filepath.WalkDir("testdata", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != FileName {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		def, broken := parseDefinition(path, data)
		if broken != nil {
			return nil
		}
		node, err := document.ParseSingle(path, data)
		if err != nil {
			return err
		}
		value, err := document.Kubectl.Value(path, node)
		if err != nil {
			return err
		}
		checked++
		for _, v := range compiled.Validate(value) {
			t.Errorf("%s (%s): %s", path, def.Metadata.Name, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 10 {
		t.Errorf("only %d stack files were checked", checked)
	}
}
