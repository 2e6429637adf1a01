package helm

import (
	"bytes"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/problem"
)

func execTemplate(t *testing.T, g *generator, text string) (string, error) {
	t.Helper()
	tmpl, err := template.New("x").Funcs(g.funcMap()).Funcs(template.FuncMap{
		"list": func(items ...any) []any { return items },
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
	g.begin("chart/x")
	defer g.end()
	var b bytes.Buffer
	err = tmpl.Execute(&b, nil)
	return b.String(), err
}

func newTestGenerator(policy generated.Policy, seed string) *generator {
	return newGenerator(Generation{Policy: policy, Stored: generated.NewValues([]byte(seed)),
		Now: time.Unix(1700000000, 0)}, "chart", []byte(seed), "chart and values")
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
		g := newTestGenerator(generated.Refuse, "a")
		first, err := execTemplate(t, g, text+"|"+text)
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
		if again, _ := execTemplate(t, newTestGenerator(generated.Refuse, "a"), text+"|"+text); again != first {
			t.Errorf("%s: %s and then %s", text, first, again)
		}
		if other, _ := execTemplate(t, newTestGenerator(generated.Refuse, "b"), text+"|"+text); other == first {
			t.Errorf("%s: another seed returns the same", text)
		}
		if len(g.derived["chart/x"]) != 1 {
			t.Errorf("%s: used %v", text, g.derived)
		}
	}
}

func TestDeterministicFunctions(t *testing.T) {
	for text, want := range map[string]string{
		`{{ keys (dict "b" 1 "a" 2) (dict "c" 3) }}`: "[a b c]",
		`{{ values (dict "b" 1 "a" 2) }}`:            "[2 1]",
		`{{ until 3 }}{{ until -2 }}{{ untilStep 3 9 3 }}{{ untilStep 0 3 0 }}{{ untilStep 3 0 1 }}`: "[0 1 2][0 " +
			"-1][3 6][][]",
		`{{ repeat 3 "ab" }}`: "ababab",
		`{{ toDate "2006-01-02" "2024-03-04" | date "02.01.2006 15:04 MST" }}`: "04.03.2024 " +
			"00:00 UTC",
		`{{ date "2006" 0 }}{{ htmlDate 86400 }}`:                                            "19701970-01-02",
		`{{ durationRound "2h10m5s" }} {{ durationRound "400h" }} {{ durationRound "1ms" }}`: "2h 16d 0s",
	} {
		got, err := execTemplate(t, newTestGenerator(generated.Refuse, "a"), text)
		if err != nil || got != want {
			t.Errorf("%s: got %q %v, want %q", text, got, err, want)
		}
	}
}

// calls has a call of each function that cannot be derived.
var calls = map[string]string{
	"now": `now | date "2006"`, "ago": `ago 0`, "date": `date "2006" "now"`, "htmlDate": `htmlDate (dict)`,
	"dateInZone":   `dateInZone "2006" (dict) "UTC"`,
	"date_in_zone": `date_in_zone "2006" (dict) "UTC"`, "durationRound": `durationRound (toDate "2006" "2020")`,
	"htmlDateInZone": `htmlDateInZone "" "UTC"`,
	"genPrivateKey":  `genPrivateKey "ed25519"`, "genCA": `genCA "x" 1`,
	"genCAWithKey":             `genCAWithKey "x" 1 (genPrivateKey "ed25519")`,
	"genSelfSignedCert":        `genSelfSignedCert "x" nil (list "x.y") 1`,
	"genSelfSignedCertWithKey": `genSelfSignedCertWithKey "x" (list "127.0.0.1") nil 1 (genPrivateKey "ed25519")`,
	"genSignedCert":            `genSignedCert "x" nil (list "x.y") 1 (genCA "ca" 1)`,
	"genSignedCertWithKey":     `genSignedCertWithKey "x" nil nil 1 (genCA "ca" 1) (genPrivateKey "ed25519")`,
	"bcrypt":                   `bcrypt "x"`, "htpasswd": `htpasswd "x" "y"`, "encryptAES": `encryptAES "x" "y"`,
}

// Functions whose output differs with each render are refused, all of them at once.
func TestRefusedFunctions(t *testing.T) {
	for name := range refusedFuncs {
		g := newTestGenerator(generated.Refuse, "a")
		if _, err := execTemplate(t, g, "{{ "+calls[name]+" }}{{ uuidv4 }}{{ now }}"); err != nil {
			t.Errorf("%s: %v", calls[name], err)
		}
		err := g.refusal(func(_, file string) []problem.Error { return []problem.Error{{File: file, Line: 7}} })
		if err == nil || !strings.HasPrefix(err.Error(), "chart/x:7: the template uses ") ||
			!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "now") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(calls) != len(refusedFuncs) {
		t.Error("a function is not called here")
	}
}

// With stored values, what a template generates stays the same.
func TestStoredValuesAreUsedAgain(t *testing.T) {
	for name, call := range calls {
		text := "{{ " + call + " }}"
		g := newTestGenerator(generated.Keep, "a")
		first, err := execTemplate(t, g, text)
		if err != nil || first == "" {
			t.Errorf("%s: %q, %v", name, first, err)
		}
		again := newTestGenerator(generated.Keep, "a")
		again.out = g.out.Clone()
		again.Now = time.Unix(1800000000, 0)
		if second, err := execTemplate(t, again, text); err != nil || second != first {
			t.Errorf("%s: %s, then %s, %v", name, first, second, err)
		}
	}
}

// Placeholders are the same in each render, and differ between calls.
func TestPlaceholders(t *testing.T) {
	for name, call := range calls {
		text := "{{ " + call + " }}"
		first, err := execTemplate(t, newTestGenerator(generated.Placeholders, "a"), text)
		second, _ := execTemplate(t, newTestGenerator(generated.Placeholders, "a"), text)
		if err != nil || first == "" || first != second {
			t.Errorf("%s: %q, %q, %v", name, first, second, err)
		}
	}
	both, err := execTemplate(t, newTestGenerator(generated.Placeholders, "a"),
		`{{ randAlphaNum 8 }} {{ randAlphaNum 8 }}`)
	if one, two, _ := strings.Cut(both, " "); err != nil || one == two || len(one) != 8 || len(two) != 8 {
		t.Errorf("%s, %v", both, err)
	}
}

func TestLimitsOfFunctions(t *testing.T) {
	for _, call := range []string{`repeat 100000000 "ab"`, `until 10000000`, `randAlphaNum 1000000`, `randInt 3 3`,
		`randBytes -1`, `repeat -1 "a"`} {
		if out, err := execTemplate(t, newTestGenerator(generated.Refuse, "a"), "{{ "+call+" }}"); err == nil {
			t.Errorf("%s made %d bytes", call, len(out))
		}
	}
}

// Every Helm function that depends on random data, the clock, new keys or the order of map keys is
// replaced. The names are those of the template library. If the library adds such a function, add
// it here.
func TestNondeterministicFunctionsAreReplaced(t *testing.T) {
	m := newTestGenerator(generated.Refuse, "a").funcMap()
	for _, name := range strings.Fields(
		`now ago date dateInZone date_in_zone htmlDate htmlDateInZone durationRound toDate mustToDate
		randAlphaNum randAlpha randNumeric randAscii randBytes randInt shuffle uuidv4 keys values
		genPrivateKey genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey
		bcrypt htpasswd encryptAES`) {
		if m[name] == nil {
			t.Errorf("%s is not replaced", name)
		}
	}
	if m[beginFunc] == nil || m[endFunc] == nil {
		t.Error("beginFunc or endFunc is missing")
	}
}
