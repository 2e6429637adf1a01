package document

import (
	"encoding/json"
	"strings"
	"testing"
)

// Values are the same as in kubectl.
func TestValue(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1":                                  `{"a":1}`,
		"a: 0644":                               `{"a":420}`,
		"a: 0o17":                               `{"a":15}`,
		"a: 0x1f":                               `{"a":31}`,
		"a: 1e3":                                `{"a":1000}`,
		"a: 1.5":                                `{"a":1.5}`,
		"a: 9223372036854775807":                `{"a":9223372036854775807}`,
		"a: yes\nb: \"yes\"\nc: off":            `{"a":true,"b":"yes","c":false}`,
		"n: y\ny: n\non: 1":                     `{"n":true,"on":1,"y":false}`,
		"a: !!str yes":                          `{"a":"yes"}`,
		"a: !!str 1":                            `{"a":"1"}`,
		"a: 2024-01-02":                         `{"a":"2024-01-02"}`,
		"a: 12:30:45":                           `{"a":"12:30:45"}`,
		"a: !!binary aGk=":                      `{"a":"hi"}`,
		"a: !custom x":                          `{"a":"x"}`,
		"a: ~\nb: null\nc:":                     `{"a":null,"b":null,"c":null}`,
		"1: a\ntrue: b":                         `{"1":"a","true":"b"}`,
		"a: &x {b: 1}\nc: *x":                   `{"a":{"b":1},"c":{"b":1}}`,
		"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}": `{"a":{"b":1,"c":2},"d":{"b":1,"c":3}}`,
		"a: &x {b: 1}\nb: &y {b: 2, c: 3}\nd: {<<: [*x, *y]}": `{"a":{"b":1},"b":{"b":2,"c":3},"d":{"b":1,"c":3}}`,
		"- 1\n- [a, {b: c}]": `[1,["a",{"b":"c"}]]`,
		`{"a": "\u00e9\n"}`:  `{"a":"é\n"}`,
	} {
		docs, err := Parse("f.yaml", []byte(text))
		if err != nil || len(docs) != 1 {
			t.Errorf("%q: %v, %d documents", text, err, len(docs))
			continue
		}
		v, err := Kubectl.Value("f.yaml", docs[0].Root)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// In kustomize, yes is a string, so it is valid in the data of a ConfigMap.
func TestKustomizeDialect(t *testing.T) {
	docs, err := Parse("f.yaml", []byte("a: yes\nb: true\nc: off\n"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Kustomize.Value("f.yaml", docs[0].Root)
	if got, _ := json.Marshal(v); err != nil || string(got) != `{"a":"yes","b":true,"c":"off"}` {
		t.Errorf("got %s %v", got, err)
	}
}

func TestValueRejectsInvalidDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: 2\na: 3":       `f.yaml:3: the key "a" is set twice, first on line 1`,
		"1: a\n\"1\": b":         `f.yaml:2: the key "1" is set twice`,
		"a: .nan":                `f.yaml:1: JSON does not support this number`,
		"a: -.inf":               `JSON does not support this number`,
		"a: 9223372036854775808": `the number is larger than`,
		"? [a]\n: b":             `f.yaml:1: a key must be a string`,
		"~: b":                   `a key must be a string`,
		"a: {<<: 1}":             `a merge key (<<) takes a mapping`,
		"a: &a [*a]":             `nested deeper than 100`,
		strings.Repeat("[", 150) + strings.Repeat("]", 150): `nested deeper than 100`,
		"a: !!binary '*'": `base64 is expected`,
	} {
		docs, err := Parse("f.yaml", []byte(text))
		if err == nil {
			_, err = Kubectl.Value("f.yaml", docs[0].Root)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	docs, err := Parse("f.yaml", []byte("# only a comment\n---\n---\na: 1\n---\nnull\n---\n\n\nb: 2\n...\n"))
	if err != nil || len(docs) != 2 || docs[0].Line != 4 || docs[1].Line != 10 {
		t.Errorf("%v %+v", err, docs)
	}
	for text, want := range map[string]string{
		"a: [":                             "f.yaml:1: this is not valid YAML",
		"a: 1\n\tb: 2":                     "f.yaml:2: this is not valid YAML",
		"a: 1\nb: *gone":                   "this is not valid YAML: unknown anchor 'gone' referenced",
		"a: 1\nb: \xff\xfe":                "f.yaml:2: the file is not UTF-8",
		strings.Repeat("---\na\n", 10_001): "more than 10000 documents",
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s", text, err, want)
		}
	}
}

type sample struct {
	Name  string            `json:"name"`
	On    bool              `json:"on"`
	Count int64             `json:"count"`
	Small int8              `json:"small"`
	Inner *sample           `json:"inner"`
	List  []sample          `json:"list"`
	Free  map[string]any    `json:"free"`
	Marks map[string]string `json:"marks"`
}

func TestDecode(t *testing.T) {
	node, err := ParseSingle("f.yaml",
		[]byte("name: y\non: on\ncount: 3\ninner: &i {name: x}\nlist: [*i, {count: 1}]\nfree: {a: [1]}\nmarks: "+
			"{k: v}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got sample
	lines, problems := Decode("f.yaml", node, &got)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	raw, _ := json.Marshal(got)
	if want := `"name":"y","on":true,"count":3`; !strings.Contains(string(raw), want) || got.List[0].Name != "x" ||
		got.List[1].Count != 1 || got.Marks["k"] != "v" {
		t.Errorf("got %s", raw)
	}
	if lines.Of("list[1].count") != 5 || lines.Of("free.a[0]") != 6 || lines.Of("gone") != 1 {
		t.Errorf("lines: %v", lines)
	}
	node, err = ParseSingle("f.yaml",
		[]byte("name: [1]\non: maybe\ncount: 1.5\nsmall: 300\ninner: 3\nlist: {}\nfree: [1]\nmarks: {k: 1}\nNAME: "+
			"x\n<<: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, problems = Decode("f.yaml", node, &sample{})
	var all []string
	for _, p := range problems {
		all = append(all, p.Message+" "+p.Suggestion)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{
		`field "name" must be a string, not a list`, `field "on" must be true or false, not a string`,
		`field "count" must be a whole number, not a number`, `field "small" must be a whole number`,
		`field "inner" must be a mapping, not a number`,
		`field "list" must be a list, not a mapping`, `field "free" must be a mapping, not a list`,
		`field "marks.k" must be a string`,
		`field "NAME" is not known name`, `field "<<" is not known`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got:\n%s\nwant: %s", text, want)
		}
	}
}
