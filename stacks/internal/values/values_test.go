package values

import (
	"encoding/json"
	"strings"
	"testing"
)

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(text, err)
	}
	return m
}

// Every message has the path and what is expected, but never the value.
func TestViolationsHavePathButNoValue(t *testing.T) {
	for _, tt := range []struct{ schema, value, want string }{
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":"hunter2"}`, `a must be integer, not string`},
		{`{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":"hunter2"}`,
			`a must be null or integer, not string`},
		{`{"properties":{"a":{"enum":["x","y"]}}}`, `{"a":"hunter2"}`, `a must be one of x, y`},
		{`{"properties":{"a":{"const":"x"}}}`, `{"a":"hunter2"}`, `a must be x`},
		{`{"properties":{"a":{"pattern":"^x"}}}`, `{"a":"hunter2"}`, `a must match the pattern ^x`},
		{`{"properties":{"a":{"minLength":9}}}`, `{"a":"hunter2"}`, `a must have at least 9 characters`},
		{`{"properties":{"a":{"maxLength":3}}}`, `{"a":"hunter2"}`, `a must have at most 3 characters`},
		{`{"properties":{"a":{"minimum":3}}}`, `{"a":1.5}`, `a must be at least 3`},
		{`{"properties":{"a":{"maximum":1}}}`, `{"a":2}`, `a must be at most 1`},
		{`{"properties":{"a":{"exclusiveMinimum":3}}}`, `{"a":3}`, `a must be more than 3`},
		{`{"properties":{"a":{"exclusiveMaximum":3}}}`, `{"a":3}`, `a must be less than 3`},
		{`{"properties":{"a":{"multipleOf":2}}}`, `{"a":3}`, `a must be a multiple of 2`},
		{`{"properties":{"a":{"minItems":2}}}`, `{"a":["hunter2"]}`, `a must have at least 2 items`},
		{`{"properties":{"a":{"maxItems":0}}}`, `{"a":["hunter2"]}`, `a must have at most 0 items`},
		{`{"properties":{"a":{"uniqueItems":true}}}`, `{"a":["hunter2","hunter2"]}`, `a has the same item at 0 and 1`},
		{`{"properties":{"a":{"minProperties":1}}}`, `{"a":{}}`, `a must have at least 1 keys`},
		{`{"properties":{"a":{"maxProperties":0}}}`, `{"a":{"b":1}}`, `a must have at most 0 keys`},
		{`{"properties":{"a":{"items":{"type":"string"}}}}`, `{"a":["x",3]}`, `a[1] must be string, not number`},
		{`{"required":["b"]}`, `{}`, `b is required`},
		{`{"properties":{"a":{"required":["b","c"]}}}`, `{"a":{"c":1}}`, `a.b is required`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `needs "b" if "a" is set`},
		{`{"properties":{"a":false}}`, `{"a":"hunter2"}`, `a is not allowed`},
		{`{"not":{"required":["a"]}}`, `{"a":"hunter2"}`, `is excluded by the schema`},
		{`{"properties":{"a":{"anyOf":[{"type":"integer"},{"pattern":"^x"}]}}}`, `{"a":"hunter2"}`,
			`a matches none of the schema's alternatives: must be integer, not string, or must match the pattern ^x`},
		{`{"properties":{"a":{"oneOf":[{"type":"string"},{"pattern":"^h"}]}}}`, `{"a":"hunter2"}`,
			`a matches none of the schema's alternatives`},
		{`{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"number"}}}`, `{"a":"hunter2"}`,
			`a must be number, not string`},
		{`{"properties":{"known":{}},"additionalProperties":false}`, `{"knwon":"hunter2"}`,
			`has the key "knwon", which is not in the schema`},
		{`{"propertyNames":{"pattern":"^x"}}`, `{"abc":"hunter2"}`, `must match the pattern ^x`},
		{`{"properties":{"a":{}},"unevaluatedProperties":false}`, `{"b":"hunter2"}`, `b is not allowed`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":"hunter2"}`, `b is required`},
		{`{"properties":{"a":{"contains":{"type":"integer"}}}}`, `{"a":["hunter2"]}`,
			`a lacks an item that the schema requires`},
	} {
		s, err := Compile(parse(t, tt.schema), AsWritten)
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		violations := s.Validate(parse(t, tt.value))
		if len(violations) != 1 {
			t.Errorf("%s: %s: got %v", tt.schema, tt.value, violations)
			continue
		}
		got := violations[0].String()
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: got %q, want %q", tt.schema, got, tt.want)
		}
	}
}

// An object with properties rejects all other keys, unless the schema allows them explicitly.
func TestClosedSchemasRejectUnknownKeys(t *testing.T) {
	for schema, tt := range map[string]struct{ accepted, refused []string }{
		`{"properties":{"a":{"properties":{"b":{}}}}}`: {
			[]string{`{"a":{"b":1}}`}, []string{`{"x":1}`, `{"a":{"x":1}}`}},
		`{"properties":{"a":{"type":"object"}}}`: {
			[]string{`{"a":{"anything":1}}`}, []string{`{"x":1}`}},
		`{"type":"object"}`: {
			[]string{`{"x":1}`}, nil},
		`{"properties":{"a":{}},"additionalProperties":true}`: {
			[]string{`{"x":1}`}, nil},
		`{"properties":{"a":{}},"patternProperties":{"^x":{}}}`: {
			[]string{`{"x":1}`}, nil},
		`{"properties":{"a":{"items":{"properties":{"b":{}}}}}}`: {
			[]string{`{"a":[{"b":1}]}`}, []string{`{"a":[{"x":1}]}`}},
		`{"additionalProperties":{"properties":{"b":{}}}}`: {
			[]string{`{"any":{"b":1}}`}, []string{`{"any":{"x":1}}`}},
		`{"properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":{"properties":{"b":{}}}}}`: {
			[]string{`{"a":{"b":1}}`}, []string{`{"a":{"x":1}}`}},
		`{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}],"properties":{"c":{"properties":{"d":{}}}}}`: {
			[]string{`{"a":1,"b":2}`}, []string{`{"c":{"x":1}}`}},
		`{"allOf":[{"$ref":"#/$defs/d"}],"properties":{"c":{}},"$defs":{"d":{"properties":{"b":{}}}}}`: {
			[]string{`{"b":1,"c":2}`}, nil},
	} {
		s, err := Compile(parse(t, schema), Closed)
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		for _, v := range tt.accepted {
			if got := s.Validate(parse(t, v)); got != nil {
				t.Errorf("%s: %s: refused: %v", schema, v, got)
			}
		}
		for _, v := range tt.refused {
			if got := s.Validate(parse(t, v)); len(got) != 1 || got[0].Unknown != "x" {
				t.Errorf("%s: %s: got %v", schema, v, got)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	s, err := Compile(parse(t,
		`{"properties":{"a":{"default":1},"b":{"default":{"d":2},"properties":{"c":{"default":3},"d":{}}},"l":{"items":{"properties":{"e":{"default":4}}}},"n":{"properties":{"x":{"default":5}}}}}`), Closed)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{}`:                              `{"a":1,"b":{"c":3,"d":2}}`,
		`{"a":null,"b":{}}`:               `{"a":null,"b":{"c":3}}`,
		`{"a":7,"l":[{},{"e":5}],"n":{}}`: `{"a":7,"b":{"c":3,"d":2},"l":[{"e":4},{"e":5}],"n":{"x":5}}`,
	} {
		in := parse(t, value)
		if got, _ := json.Marshal(s.Defaults(in)); string(got) != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
		if again, _ := json.Marshal(in); string(again) != value {
			t.Errorf("%s was changed to %s", value, again)
		}
	}
}

func TestMerge(t *testing.T) {
	base := parse(t, `{"a":{"b":1,"c":{"d":1}},"l":[1,2],"s":"x"}`)
	over := parse(t, `{"a":{"b":null,"c":{"e":2}},"l":[3],"s":{"t":1},"new":1}`)
	got, _ := json.Marshal(Merge(base, over))
	if want := `{"a":{"b":null,"c":{"d":1,"e":2}},"l":[3],"new":1,"s":{"t":1}}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if raw, _ := json.Marshal(base); string(raw) != `{"a":{"b":1,"c":{"d":1}},"l":[1,2],"s":"x"}` {
		t.Errorf("the base was changed: %s", raw)
	}
}

func TestDropRemote(t *testing.T) {
	schema := parse(t,
		`{"properties":{"a":{"$ref":"https://x.example.com/s.json#/a"},"b":{"$ref":"#/$defs/b"}},"$defs":{"b":{"items":[{"$ref":"other.json"}]}}}`)
	if got := DropRemote(schema); strings.Join(got, " ") != "https://x.example.com/s.json#/a other.json" {
		t.Errorf("got %v", got)
	}
	if got := DropRemote(schema); got != nil {
		t.Errorf("left: %v", got)
	}
}
