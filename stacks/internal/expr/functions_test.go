package expr

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func TestYAMLParseIsBounded(t *testing.T) {
	for source, want := range map[string]string{
		`yaml.parse('a: [')`: "yaml.parse failed", `yaml.parse('--- 1\n--- 2')`: "several YAML documents",
		`yaml.parse(params.gone)`: "are allowed", `yaml.parse(1)`: "no matching overload",
	} {
		x, err := compiler(t).Compile(source)
		if err == nil {
			_, err = x.Eval(t.Context(), Variables{Params: map[string]any{
				"gone": strings.Repeat("x", maxParsedBytes+1)}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
}

// aliasBomb returns a document of a few bytes with 10 to the power of depth values.
func aliasBomb(depth int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [" + strings.Repeat("x, ", 10) + "]\n")
	for i := 1; i < depth; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	return b.String()
}

func TestSHA256(t *testing.T) {
	params := map[string]any{"n": int64(1), "f": 1.0, "gone": "a", "names": []any{"x", "<&>"},
		"labels": map[string]any{"b": nil, "a": true}, "x": map[string]any{"n": 1.5}}
	for source, canonical := range map[string]string{
		`sha256('a')`: `"a"`, `sha256(b'a')`: `"a"`, `sha256(params.gone)`: `"a"`, `sha256('')`: `""`,
		`sha256(params.n)`: `1`, `sha256(params.f)`: `1`, `sha256(null)`: `null`, `sha256(params.x.n)`: `1.5`,
		`sha256(params.labels)`: `{"a":true,"b":null}`, `sha256({'b': null, 'a': true})`: `{"a":true,"b":null}`,
		`sha256([])`: `[]`, `sha256(params.names)`: `["x","<&>"]`,
		`sha256(yaml.parse('a: [1, b]'))`: `{"a":[1,"b"]}`, `sha256({'a': version, 'n': [name, namespace]})`: `{"a":"1.0.0","n":["site","team"]}`,
	} {
		x, err := compiler(t).CompileString(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := x.Eval(t.Context(), Variables{Params: params, Name: "site", Namespace: "team", Version: "1.0.0"})
		if sum := sha256.Sum256([]byte(canonical)); err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: got %v, %v; want the hash of %s", source, got, err, canonical)
		}
	}
}

func TestFunctionsAreBounded(t *testing.T) {
	many := make([]any, maxValues)
	long := strings.Repeat("x", maxParsedBytes)
	for source, want := range map[string]string{
		`sha256(params.list)`:         "sha256 cannot hash too many or too deeply nested values",
		`sha256(params.gone)`:         "sha256 cannot hash 1048578 bytes of JSON; 1048576 are allowed",
		`sha256({params.gone: 1})`:    "sha256 cannot hash 1048582 bytes of JSON",
		`sha256({1: 2})`:              "sha256 cannot hash a map whose keys are not strings",
		`sha256(b'\xff')`:             "sha256 cannot hash bytes that are no text in UTF-8",
		`sha256(timestamp(0))`:        "sha256 cannot hash a google.protobuf.Timestamp",
		`sha256(1.0 / 0.0)`:           "sha256 cannot hash a number that JSON doesn't have",
		`sha256()`:                    "no matching overload",
		`yaml.parse(params.x.bomb)`:   "yaml.parse failed: the document has too many or too deeply nested values",
		`yaml.parse(params.x.bigger)`: "yaml.parse failed: the document has more than 1000000 values",
		`yaml.parse(params.x.text)`:   "yaml.parse failed: the document has more text than is allowed",
		`yaml.parse(params.x.deep)`:   "yaml.parse failed: the document has too many or too deeply nested values",
		`yaml.parse('a: &a [*a]')`:    "nested deeper than 100 levels",
		`[1, 2, 3, 4, 5, 6, 7, 8, 9].map(i, yaml.parse(params.gone)).size()`:      "cost limit exceeded",
		`[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(i, sha256(params.sizes)).size()`: "cost limit exceeded",
	} {
		x, err := compiler(t).Compile(source)
		if err == nil {
			_, err = x.Eval(t.Context(), Variables{Params: map[string]any{"list": many, "gone": long,
				"sizes": map[string]any{"a": many[:maxValues-10]},
				"x": map[string]any{"bomb": aliasBomb(5), "bigger": aliasBomb(8),
					"text": "a: &a " + strings.Repeat("x", 8<<10) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]",
					"deep": strings.Repeat("[", 70) + strings.Repeat("]", 70)}}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
}

// FuzzYAMLParse parses arbitrary texts in an expression. The result is a value within the limits,
// or an error; of a secret, neither shows the text.
func FuzzYAMLParse(f *testing.F) {
	for _, seed := range []string{"", "a: 1\n", "a: &a [*a]\n", "--- 1\n--- 2\n", "a: &a {b: 1}\nc: {<<: *a}\n",
		"\xff", "a: .nan\n", "? [a]\n: b\n", "a: !!binary aGk=\n", "1: a\ntrue: b\n", aliasBomb(3),
		"[[[[[[[[[[a]]]]]]]]]]"} {
		f.Add(seed)
	}
	compile := func(source string) *Expression {
		x, err := compiler(f).Compile(source)
		if err != nil {
			f.Fatal(err)
		}
		return x
	}
	parse, hash := compile("yaml.parse(params.x)"), compile("sha256(yaml.parse(params.x))")
	f.Fuzz(func(t *testing.T, text string) {
		value, err := parse.Eval(t.Context(), Variables{Params: map[string]any{"x": text}})
		_, hashErr := hash.Eval(t.Context(), Variables{Params: map[string]any{"x": text}})
		if (err == nil) != (hashErr == nil) && (hashErr == nil || !strings.Contains(hashErr.Error(), "are allowed")) {
			t.Fatalf("%v, but the hash: %v", err, hashErr)
		}
		if err == nil && FindSecret(value) != nil {
			t.Fatal("a secret appeared")
		}
		secret := NewSecret("params.x", text)
		value, err = parse.Eval(t.Context(), Variables{Params: map[string]any{"x": secret}})
		if own, isSecret := value.(*Secret); err == nil && !isSecret {
			t.Fatalf("got %v", own)
		}
		if err != nil && len(text) > 40 && strings.Contains(err.Error(), text) {
			t.Fatal("the error shows the secret")
		}
		if _, err = hash.Eval(t.Context(), Variables{Params: map[string]any{"x": secret}}); err == nil {
			t.Fatal("a secret is hashed")
		}
	})
}
