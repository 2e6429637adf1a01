package codec

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/json"

	"github.com/ksctl/gitops/stacks/sops"
)

const matchNothing = `[^\s\S]`

// decryptWithLibrary decrypts a file with the library alone, as the program sops does.
func decryptWithLibrary(t *testing.T, file []byte, f Format, keys Keys) string {
	t.Helper()
	tree, err := storeOf(f).LoadEncryptedFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := dataKey(t.Context(), &tree.Metadata, keys, defaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	mac, err := tree.Decrypt(key, aes.NewCipher())
	if err != nil {
		t.Fatal(err)
	}
	was, err := aes.NewCipher().Decrypt(tree.Metadata.MessageAuthenticationCode, key,
		tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil || was != mac {
		t.Fatalf("got MAC %v, want %s: %v", was, mac, err)
	}
	plain, err := storeOf(f).EmitPlainFile(tree.Branches)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// markTree matches an expression itself. The result is the same as that of the library: it decrypts
// files of this package, and encrypts the same values of a plain file.
func TestMarkedRuleMatchesLibrary(t *testing.T) {
	id := newAge(t)
	keys := ageKeys(t, id)
	odd := `{"a:b": {"c": "one", "name": "two"}, "a": {"b:c": "one"}, "name": {"a": [{"b": 1}], "name": null}, "": "x", "n\nname": 1.5, "name_": true, "list": [[{"name": 7, "x": ""}]]}` + "\n"
	for _, rule := range []string{"^name$", "(?m)^(name|password)$", "a", "hosts|stringData", "kind", matchNothing} {
		for f, plain := range map[Format]string{sops.YAML: plainYAML + "anchor: &x {name: a, b: c}\nalias: *x\n",
			sops.JSON: odd, sops.INI: plainINI, sops.Dotenv: plainDotenv} {
			for _, o := range []sops.EncryptRequest{{UnencryptedRegex: rule}, {EncryptedRegex: rule}} {
				file := mustEncrypt(t, plain, f, o, id.Recipient().String())
				got, want := mustDecrypt(t, file, f, keys, defaultOptions()), decryptWithLibrary(t, file, f, keys)
				if got != want || strings.Contains(got, "ENC[") {
					t.Errorf("%s, %+v: got\n%s\nwant, as the library\n%s", f, o, got, want)
				}
				assertEquivalent(t, f, got,
					mustDecrypt(t, mustEncrypt(t, plain, f, sops.EncryptRequest{}, id.Recipient().String()), f, keys,
						defaultOptions()))
				if again := shapeOf(t, f, file); again != shapeWithLibrary(t, f, plain, o) {
					t.Errorf("%s, %+v: got\n%s\nwant, as the library\n%s", f, o, again,
						shapeWithLibrary(t, f, plain, o))
				}
			}
		}
	}
}

// shapeOf returns the structure of an encrypted file, with ENC for each encrypted value.
func shapeOf(t *testing.T, f Format, file []byte) string {
	t.Helper()
	tree, err := storeOf(f).LoadEncryptedFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return shape(tree.Branches)
}

// shapeWithLibrary returns the shape of a plain file after the library encrypted it.
func shapeWithLibrary(t *testing.T, f Format, plain string, o sops.EncryptRequest) string {
	t.Helper()
	branches, err := storeOf(f).LoadPlainFile([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	tree := library.Tree{Branches: branches,
		Metadata: library.Metadata{EncryptedRegex: o.EncryptedRegex, UnencryptedRegex: o.UnencryptedRegex}}
	if _, err := tree.Encrypt(make([]byte, 32), aes.NewCipher()); err != nil {
		t.Fatal(err)
	}
	return shape(tree.Branches)
}

func shape(value any) string {
	var out strings.Builder
	switch v := value.(type) {
	case library.TreeBranches:
		for _, b := range v {
			out.WriteString(shape(b) + "\n")
		}
	case library.TreeBranch:
		for _, item := range v {
			fmt.Fprintf(&out, "%s{%s} ", shape(item.Key), shape(item.Value))
		}
	case []any:
		for _, one := range v {
			out.WriteString(shape(one) + ", ")
		}
	case library.Comment:
		return "#" + shape(v.Value)
	default:
		if s := fmt.Sprint(v); !strings.HasPrefix(s, "ENC[") {
			return s
		}
		return "ENC"
	}
	return out.String()
}

// An invalid expression matches nothing, as in the library.
func TestInvalidRuleMatchesNothing(t *testing.T) {
	for _, m := range []library.Metadata{{UnencryptedRegex: "("}, {EncryptedRegex: "("}} {
		b := func() library.TreeBranches { return library.TreeBranches{{{Key: "a(", Value: "one"}}} }
		ours, theirs := library.Tree{Branches: b(), Metadata: m}, library.Tree{Branches: b(), Metadata: m}
		marked, cipher, unmark := markTree(&ours)
		_, err := marked.Encrypt(make([]byte, 32), cipher)
		unmark()
		if _, terr := theirs.Encrypt(make([]byte, 32), aes.NewCipher()); err != nil || terr != nil ||
			shape(ours.Branches) != shape(theirs.Branches) {
			t.Errorf("%+v: got %s, want %s, as the library; errors %v, %v", m, shape(ours.Branches),
				shape(theirs.Branches), err, terr)
		}
	}
}

// An expression is compiled once per file, not for each name on the path of each value.
func TestRuleIsCompiledOncePerFile(t *testing.T) {
	id := newAge(t)
	keys := ageKeys(t, id)
	const values = 500
	plain := `{"list":[` + strings.Repeat(`{"a":{"b":"x"}},`, values-1) + `{"a":{"b":"x"}}]}`
	rule := "(?m)^(" + strings.Repeat("another_name|", 30) + "name)$"
	for _, o := range []sops.EncryptRequest{{UnencryptedRegex: rule}, {EncryptedRegex: rule + "|^b$"}} {
		var file []byte
		sealing := testing.AllocsPerRun(1, func() {
			file = mustEncrypt(t, plain, sops.JSON, o, id.Recipient().String())
		})
		opening := testing.AllocsPerRun(1, func() { mustDecrypt(t, file, sops.JSON, keys, defaultOptions()) })
		if most := 100.0 * values; sealing > most || opening > most {
			t.Errorf("got %.0f and %.0f allocations per value for encryption and decryption", sealing/values,
				opening/values)
		}
	}
}

// jsonStore writes the same bytes as the library, and a long list with memory proportional to its
// size.
func TestJSONStoreMatchesLibrary(t *testing.T) {
	theirs := json.NewStore(&config.JSONStoreConfig{Indent: -1})
	for _, plain := range []string{plainJSON, `{}`,
		`{"a":[],"b":{},"c":[[],[{}],null,"<&>\u2028 ü","x"],"d":[1.0,1e300,-0.5,9007199254740993]}`} {
		branches, err := theirs.LoadPlainFile([]byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		branches[0] = append(branches[0], library.TreeItem{Key: library.Comment{Value: "c"}},
			library.TreeItem{Key: "at", Value: time.Unix(0, 0).UTC()},
			library.TreeItem{Key: "e",
				Value: []any{library.Comment{Value: "c"}, "x", library.Comment{Value: "c"}, []byte("x")}})
		want, err := theirs.EmitPlainFile(branches)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := storeOf(sops.JSON).EmitPlainFile(branches); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s\n%v", got, want, err)
		}
	}
	long := make([]any, 20000)
	for i := range long {
		long[i] = i
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := storeOf(sops.JSON).EmitPlainFile(library.TreeBranches{{{Key: "a", Value: long}}})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 100*uint64(len(out)) {
		t.Errorf("allocated %d bytes for a list of %d bytes, error %v", used, len(out), err)
	}
}
