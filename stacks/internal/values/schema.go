// Package values validates, defaults and merges the values and parameters of an install. Messages
// of schema violations never contain a value. Merging is the same as in Helm.
package values

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/problem"
)

// Mode is how Compile treats unknown keys.
type Mode int

const (
	// AsWritten follows the JSON schema specification.
	AsWritten Mode = iota
	// Closed rejects keys that are not in the properties of an object, unless the schema allows
	// further keys explicitly. This detects typos.
	Closed
)

const schemaURL = "mem:schema.json"

// Schema is a compiled JSON schema.
type Schema struct {
	doc      map[string]any
	compiled *jsonschema.Schema
	compiler *jsonschema.Compiler
}

// noLoader rejects references to other documents, so that none is fetched or read.
type noLoader struct{}

// Load always returns an error.
func (noLoader) Load(url string) (any, error) {
	return nil, problem.Newf("refers to %s; only references within the schema are allowed", url)
}

// Compile compiles a schema.
func Compile(schema map[string]any, mode Mode) (*Schema, error) {
	doc := Copy(schema)
	if mode == Closed {
		closeObjects(doc, !usesComposition(doc))
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return nil, problem.Newf("is not a JSON schema: %w", err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, &problem.Error{Message: "is not a valid JSON schema: " + compileReason(err), Err: err}
	}
	return &Schema{doc: doc, compiled: compiled, compiler: compiler}, nil
}

// compileReason returns the reason of a compile error. It is short if the library reports which
// part of the schema is wrong.
func compileReason(err error) string {
	if own, ok := errors.AsType[*problem.Error](err); ok {
		return own.Message
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			s := Schema{doc: map[string]any{}}
			var parts []string
			for _, violation := range s.violations(v) {
				parts = append(parts, violation.String())
			}
			return strings.Join(parts, "; ")
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// ParseSchema parses a schema in JSON, such as the values.schema.json of a chart.
func ParseSchema(data []byte) (map[string]any, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		return nil, err
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("a schema must be an object")
	}
	return m, nil
}

var compositionKeywords = []string{"allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "dependentSchemas",
	"dependencies", "not"}

// usesComposition returns true if the schema, or a schema in it, composes an object from several
// schemas. Definitions may then be such parts, and must not be closed on their own.
func usesComposition(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range compositionKeywords {
			if _, there := v[key]; there && key != "$ref" {
				return true
			}
		}
		for _, item := range v {
			if usesComposition(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, usesComposition)
	}
	return false
}

func closeObjects(schema map[string]any, definitions bool) {
	if _, lists := schema["properties"].(map[string]any); lists {
		open := false
		for _, key := range append([]string{"additionalProperties", "patternProperties", "unevaluatedProperties"},
			compositionKeywords...) {
			_, there := schema[key]
			open = open || there
		}
		if !open {
			schema["additionalProperties"] = false
		}
	}
	groups := []string{"properties", "patternProperties"}
	if definitions {
		groups = append(groups, "$defs", "definitions")
	}
	for _, group := range groups {
		members, _ := schema[group].(map[string]any)
		for _, member := range members {
			if sub, ok := member.(map[string]any); ok {
				closeObjects(sub, definitions)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if sub, ok := schema[key].(map[string]any); ok {
			closeObjects(sub, definitions)
		}
	}
}

// Properties returns the names of a schema's top-level properties, sorted.
func Properties(schema map[string]any) []string { return keys(schema["properties"]) }

func keys(v any) []string {
	m, _ := v.(map[string]any)
	return slices.Sorted(maps.Keys(m))
}

// Defaults returns a copy of v with the defaults of missing properties. Like Kubernetes, it sets
// defaults only within objects that exist.
func (s *Schema) Defaults(v map[string]any) map[string]any {
	out := Copy(v)
	fillDefaults(s.doc, out)
	return out
}

func fillDefaults(schema map[string]any, v any) {
	switch v := v.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			sub, ok := p.(map[string]any)
			if !ok {
				continue
			}
			if _, there := v[name]; !there {
				if def, has := sub["default"]; has {
					v[name] = copyAny(def)
				}
			}
			fillDefaults(sub, v[name])
		}
	case []any:
		if sub, ok := schema["items"].(map[string]any); ok {
			for _, item := range v {
				fillDefaults(sub, item)
			}
		}
	}
}

// CheckDefaults returns an error for every default that violates its own schema.
func (s *Schema) CheckDefaults() error {
	var errs problem.Errors
	var walk func(schema map[string]any, pointer, name string)
	walk = func(schema map[string]any, pointer, name string) {
		for _, key := range keys(schema["properties"]) {
			sub, ok := schema["properties"].(map[string]any)[key].(map[string]any)
			if !ok {
				continue
			}
			at := pointer + "/properties/" + strings.NewReplacer("~", "~0", "/", "~1", "%", "%25").Replace(key)
			if def, has := sub["default"]; has {
				compiled, err := s.compiler.Compile(schemaURL + "#" + at)
				if err == nil && compiled.Validate(def) != nil {
					errs = append(errs,
						problem.Newf("has a default for %q that it does not allow", document.Join(name, key)))
				}
			}
			walk(sub, at, document.Join(name, key))
		}
	}
	walk(s.doc, "", "")
	return errs.Err()
}

// Copy returns a deep copy.
func Copy(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = copyAny(v)
	}
	return out
}

func copyAny(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Copy(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copyAny(v[i])
		}
		return out
	}
	return v
}

// Merge returns base with the values of over: mappings are merged, all other values are replaced.
// Nulls are kept, because Helm uses null to remove a default.
func Merge(base, over map[string]any) map[string]any {
	out := Copy(base)
	for k, v := range over {
		below, isMap := out[k].(map[string]any)
		above, ok := v.(map[string]any)
		if isMap && ok {
			out[k] = Merge(below, above)
			continue
		}
		out[k] = copyAny(v)
	}
	return out
}

// DropRemote removes references to other documents from schema, and returns them.
func DropRemote(schema map[string]any) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && !strings.HasPrefix(ref, "#") {
				out = append(out, ref)
				delete(v, "$ref")
			}
			for _, item := range v {
				walk(item)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(schema)
	slices.Sort(out)
	return slices.Compact(out)
}
