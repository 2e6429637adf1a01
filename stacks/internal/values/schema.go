// Package values checks and merges what an install may choose: JSON schemas with
// messages that never show a value, defaults, and Helm's way of merging.
package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ksctl/gitops/stacks/problem"
)

// Mode says how a schema is read.
type Mode int

const (
	// AsWritten is JSON schema to the letter.
	AsWritten Mode = iota
	// Closed takes an object that lists its properties to list all of them, unless
	// it says something about further ones. That is how typos are found.
	Closed
)

const schemaURL = "mem:schema.json"

// Schema is a compiled JSON schema.
type Schema struct {
	doc      map[string]any
	compiled *jsonschema.Schema
	compiler *jsonschema.Compiler
}

// noLoader refuses references to other documents: nothing is fetched or read.
type noLoader struct{}

// Load refuses.
func (noLoader) Load(url string) (any, error) {
	return nil, &problem.Error{Message: fmt.Sprintf("refers to %s; only references within the schema are allowed", url)}
}

// Compile compiles a schema.
func Compile(schema map[string]any, mode Mode) (*Schema, error) {
	doc := Copy(schema)
	if mode == Closed {
		closeObjects(doc, !composes(doc))
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return nil, &problem.Error{Message: "is not a JSON schema: " + err.Error(), Err: err}
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, &problem.Error{Message: "is not a valid JSON schema: " + compileReason(err), Err: err}
	}
	return &Schema{doc: doc, compiled: compiled, compiler: compiler}, nil
}

// compileReason is short where the library tells which part of the schema is wrong.
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

// ParseSchema reads a schema from JSON, as charts have it.
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

var composing = []string{"allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "dependentSchemas", "dependencies", "not"}

// composes says whether the schema puts an object together from parts. Then a part
// must not be closed on its own.
func composes(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range composing {
			if _, there := v[key]; there && key != "$ref" {
				return true
			}
		}
		for _, item := range v {
			if composes(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, composes)
	}
	return false
}

func closeObjects(schema map[string]any, definitions bool) {
	if _, lists := schema["properties"].(map[string]any); lists {
		open := false
		for _, key := range append([]string{"additionalProperties", "patternProperties", "unevaluatedProperties"}, composing...) {
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

// Properties are the names that the schema declares at its top.
func (s *Schema) Properties() []string { return Properties(s.doc) }

// Properties are the names that a schema declares at its top.
func Properties(schema map[string]any) []string { return keys(schema["properties"]) }

func keys(v any) []string {
	m, _ := v.(map[string]any)
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Defaults puts in the defaults of properties that v doesn't have, as Kubernetes
// does: in objects that are there.
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

// CheckDefaults finds defaults that their own schema doesn't allow.
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
					errs = append(errs, &problem.Error{Message: fmt.Sprintf("gives %q a default that it doesn't allow", join(name, key))})
				}
			}
			walk(sub, at, join(name, key))
		}
	}
	walk(s.doc, "", "")
	return errs.Err()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Copy is a deep copy.
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

// Merge lays over on top of base: mappings are merged, everything else is replaced.
// null stays, because to Helm it means: without the default.
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

// Floats turns every number into a float64, as Helm has them in values.
func Floats(m map[string]any) (map[string]any, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(data, &out)
}

// DropRemote removes references to other documents and lists them.
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
