package helm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/template"
)

func execTemplate(t *testing.T, f *templateFuncs, text string) (string, error) {
	t.Helper()
	tmpl, err := template.New("x").Funcs(f.funcMap()).Funcs(template.FuncMap{
		"dict": func(kv ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i+1 < len(kv); i += 2 {
				m[kv[i].(string)] = kv[i+1]
			}
			return m
		},
	}).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	f.begin("x")
	var b bytes.Buffer
	err = tmpl.Execute(&b, nil)
	return b.String(), err
}

func newTemplateFuncs(seed string) *templateFuncs {
	return &templateFuncs{seed: []byte(seed), used: map[string][]string{}}
}

// Random functions return the same output for the same seed and template, a different output for
// each call, and only characters of their alphabet.
func TestRandomFunctions(t *testing.T) {
	for text, shape := range map[string]string{
		`{{ randAlphaNum 12 }}`:                      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
		`{{ randAlpha 12 }}`:                         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
		`{{ randNumeric 12 }}`:                       "0123456789",
		`{{ randAscii 12 }}`:                         printable(),
		`{{ uuidv4 }}`:                               "0123456789abcdef-",
		`{{ randBytes 12 }}`:                         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=",
		`{{ randInt 1000 1000000000 }}`:              "0123456789",
		`{{ shuffle "abcdefghijklmnopqrstuvwxyz" }}`: "abcdefghijklmnopqrstuvwxyz",
	} {
		f := newTemplateFuncs("a")
		first, err := execTemplate(t, f, text+"|"+text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		one, two, _ := strings.Cut(first, "|")
		if one == two {
			t.Errorf("%s returns %s twice", text, one)
		}
		if strings.Trim(one+two, shape) != "" {
			t.Errorf("%s returns %s", text, first)
		}
		if again, _ := execTemplate(t, newTemplateFuncs("a"), text+"|"+text); again != first {
			t.Errorf("%s: %s and then %s", text, first, again)
		}
		if other, _ := execTemplate(t, newTemplateFuncs("b"), text+"|"+text); other == first {
			t.Errorf("%s: another seed returns the same", text)
		}
		if len(f.used["x"]) != 1 {
			t.Errorf("%s: used %v", text, f.used)
		}
	}
}

func TestDeterministicFunctions(t *testing.T) {
	for text, want := range map[string]string{
		`{{ keys (dict "b" 1 "a" 2) (dict "c" 3) }}`:                                                 "[a b c]",
		`{{ values (dict "b" 1 "a" 2) }}`:                                                            "[2 1]",
		`{{ until 3 }}{{ until -2 }}{{ untilStep 3 9 3 }}{{ untilStep 0 3 0 }}{{ untilStep 3 0 1 }}`: "[0 1 2][0 -1][3 6][][]",
		`{{ repeat 3 "ab" }}`:                                                                        "ababab",
		`{{ toDate "2006-01-02" "2024-03-04" | date "02.01.2006 15:04 MST" }}`:                       "04.03.2024 00:00 UTC",
		`{{ date "2006" 0 }}{{ htmlDate 86400 }}`:                                                    "19701970-01-02",
		`{{ durationRound "2h10m5s" }} {{ durationRound "400h" }} {{ durationRound "1ms" }}`:         "2h 16d 0s",
	} {
		got, err := execTemplate(t, newTemplateFuncs("a"), text)
		if err != nil || got != want {
			t.Errorf("%s: got %q %v, want %q", text, got, err, want)
		}
	}
}

// Functions whose output differs with each render are rejected, with their name.
func TestRefusedFunctionsFail(t *testing.T) {
	calls := map[string]string{
		"date": `date "2006" "now"`, "htmlDate": `htmlDate nil`, "dateInZone": `dateInZone "2006" nil "UTC"`,
		"durationRound": `durationRound (toDate "2006" "2020")`, "htmlDateInZone": `htmlDateInZone "" "UTC"`,
	}
	for name := range refusedFuncs {
		calls[name] = name + ` "x" 1`
	}
	for name, call := range calls {
		f := newTemplateFuncs("a")
		_, err := execTemplate(t, f, "{{ "+strings.ReplaceAll(call, "nil", `(dict)`)+" }}")
		if err == nil || f.refused != name {
			t.Errorf("%s: refused %q, %v", call, f.refused, err)
		}
		if refusalAdvice(name) == "" {
			t.Errorf("%s: no advice", name)
		}
	}
	for _, call := range []string{`repeat 100000000 "ab"`, `until 10000000`, `randAlphaNum 1000000`, `randInt 3 3`, `randBytes -1`, `repeat -1 "a"`} {
		if out, err := execTemplate(t, newTemplateFuncs("a"), "{{ "+call+" }}"); err == nil {
			t.Errorf("%s made %d bytes", call, len(out))
		}
	}
}

// Every Helm function that depends on random data, the clock, new keys or the order of map keys is
// replaced. The names are those of the template library. If the library adds such a function, add
// it here.
func TestNondeterministicFunctionsAreReplaced(t *testing.T) {
	m := newTemplateFuncs("a").funcMap()
	for _, name := range strings.Fields(`now ago date dateInZone date_in_zone htmlDate htmlDateInZone durationRound toDate mustToDate
		randAlphaNum randAlpha randNumeric randAscii randBytes randInt shuffle uuidv4 keys values
		genPrivateKey genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey
		bcrypt htpasswd encryptAES`) {
		if m[name] == nil {
			t.Errorf("%s is not replaced", name)
		}
	}
	if fmt.Sprint(m[beginFunc]) == "<nil>" {
		t.Error("beginFunc is missing")
	}
}
