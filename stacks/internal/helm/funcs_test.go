package helm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/template"
)

func exec(t *testing.T, f *functions, text string) (string, error) {
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

func fresh(seed string) *functions {
	return &functions{seed: []byte(seed), used: map[string][]string{}}
}

// The same seed and template give the same, each call gives something else, and of the right shape.
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
		f := fresh("a")
		first, err := exec(t, f, text+"|"+text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		one, two, _ := strings.Cut(first, "|")
		if one == two {
			t.Errorf("%s gives %s twice", text, one)
		}
		if strings.Trim(one+two, shape) != "" {
			t.Errorf("%s gives %s", text, first)
		}
		if again, _ := exec(t, fresh("a"), text+"|"+text); again != first {
			t.Errorf("%s: %s and then %s", text, first, again)
		}
		if other, _ := exec(t, fresh("b"), text+"|"+text); other == first {
			t.Errorf("%s: another seed gives the same", text)
		}
		if len(f.used["x"]) != 1 {
			t.Errorf("%s: used %v", text, f.used)
		}
	}
}

func TestFixedFunctions(t *testing.T) {
	for text, want := range map[string]string{
		`{{ keys (dict "b" 1 "a" 2) (dict "c" 3) }}`:                                                 "[a b c]",
		`{{ values (dict "b" 1 "a" 2) }}`:                                                            "[2 1]",
		`{{ until 3 }}{{ until -2 }}{{ untilStep 3 9 3 }}{{ untilStep 0 3 0 }}{{ untilStep 3 0 1 }}`: "[0 1 2][0 -1][3 6][][]",
		`{{ repeat 3 "ab" }}`:                                                                        "ababab",
		`{{ toDate "2006-01-02" "2024-03-04" | date "02.01.2006 15:04 MST" }}`:                       "04.03.2024 00:00 UTC",
		`{{ date "2006" 0 }}{{ htmlDate 86400 }}`:                                                    "19701970-01-02",
		`{{ durationRound "2h10m5s" }} {{ durationRound "400h" }} {{ durationRound "1ms" }}`:         "2h 16d 0s",
	} {
		got, err := exec(t, fresh("a"), text)
		if err != nil || got != want {
			t.Errorf("%s: got %q %v, want %q", text, got, err, want)
		}
	}
}

// What differs with each render is refused by name.
func TestRefusedFunctions(t *testing.T) {
	calls := map[string]string{
		"date": `date "2006" "now"`, "htmlDate": `htmlDate nil`, "dateInZone": `dateInZone "2006" nil "UTC"`,
		"durationRound": `durationRound (toDate "2006" "2020")`, "htmlDateInZone": `htmlDateInZone "" "UTC"`,
	}
	for name := range instead {
		calls[name] = name + ` "x" 1`
	}
	for name, call := range calls {
		f := fresh("a")
		_, err := exec(t, f, "{{ "+strings.ReplaceAll(call, "nil", `(dict)`)+" }}")
		if err == nil || f.refused != name {
			t.Errorf("%s: refused %q, %v", call, f.refused, err)
		}
		if advice(name) == "" || whence(name) == "" {
			t.Errorf("%s: no advice", name)
		}
	}
	for _, call := range []string{`repeat 100000000 "ab"`, `until 10000000`, `randAlphaNum 1000000`, `randInt 3 3`, `randBytes -1`, `repeat -1 "a"`} {
		if out, err := exec(t, fresh("a"), "{{ "+call+" }}"); err == nil {
			t.Errorf("%s made %d bytes", call, len(out))
		}
	}
}

// Every function of Helm's own that rests on chance, the clock or keys must be replaced.
// The names are those of the template library; a new one must be decided on.
func TestNothingRandomIsLeft(t *testing.T) {
	m := fresh("a").funcMap()
	for _, name := range strings.Fields(`now ago date dateInZone date_in_zone htmlDate htmlDateInZone durationRound toDate mustToDate
		randAlphaNum randAlpha randNumeric randAscii randBytes randInt shuffle uuidv4 keys values
		genPrivateKey genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey
		bcrypt htpasswd encryptAES`) {
		if m[name] == nil {
			t.Errorf("%s is not replaced", name)
		}
	}
	if fmt.Sprint(m[beginFunc]) == "<nil>" {
		t.Error("templates can't say their name")
	}
}
