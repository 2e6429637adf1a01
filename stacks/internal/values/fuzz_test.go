package values

import (
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/stacks/problem"
)

// FuzzSchema compiles arbitrary schemas. A schema is rejected with an error, or validates arbitrary
// values and sets their defaults without changing the input.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{
		`{}`, `{"properties":{"a":{"type":"integer","default":1},"b":{"properties":{"c":{"default":[]}}}},"required":["a"]}`,
		`{"$ref":"#"}`, `{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/x"}}}`,
		`{"$ref":"https://example.com/s.json"}`, `{"$id":"file:///etc/passwd","$ref":"x"}`,
		`{"allOf":[{"properties":{"a":true}},{"not":{}}],"unevaluatedProperties":false}`,
		`{"patternProperties":{"(a+)+$":{"type":"string"}}}`,
		`{"properties":{"a":{"default":{"b":{"default":1}}}}}`, `{"type":["object","null"],"properties":null}`,
		`{"properties":{"":{"enum":[1,"x",null]}},"if":{"const":1},"then":false}`,
		`{"multipleOf":1e-300}`, `{"items":{"$dynamicRef":"#x"}}`,
	} {
		f.Add(schema, `{"a":1,"b":{"c":"d"},"aaaaaaaaaaaaaaaaaaaa!":"x"}`)
	}
	f.Fuzz(func(t *testing.T, text, given string) {
		schema, err := ParseSchema([]byte(text))
		if err != nil {
			t.Skip()
		}
		var vals map[string]any
		if json.Unmarshal([]byte(given), &vals) != nil || vals == nil {
			t.Skip()
		}
		for _, mode := range []Mode{AsWritten, Closed} {
			s, err := Compile(schema, mode)
			if err != nil {
				if !errors.As(err, new(*problem.Error)) {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			before := Copy(vals)
			for _, v := range s.Validate(vals) {
				if v.String() == "" {
					t.Fatalf("%+v has no message", v)
				}
			}
			filled := s.Defaults(vals)
			if !reflect.DeepEqual(vals, before) {
				t.Fatalf("the input was changed to %v from %v", vals, before)
			}
			for key := range vals {
				if _, there := filled[key]; !there {
					t.Fatalf("Defaults removed %q: %v", key, filled)
				}
			}
			_ = s.CheckDefaults()
		}
	})
}
