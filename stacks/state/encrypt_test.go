package state

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

func TestEncryptVerifiesResult(t *testing.T) {
	const plain = `{"cluster_name":"demo","nodes":1.50,"k3s_token":"hunter2","list":[{"a":null,"b":true}],"n":1e3}`
	for name, c := range map[string]struct{ sealed, says string }{
		"public readable": {
			`{"cluster_name":"demo","nodes":1.5,"k3s_token":"ENC[x]","list":[{"a":null,"b":"ENC[x]"}],"n":"ENC[x]","sops":{"mac":"x"}}`, ""},
		"all encrypted": {
			`{"cluster_name":"ENC[x]","nodes":"ENC[x]","k3s_token":"ENC[x]","list":[{"a":null,"b":"ENC[x]"}],"n":"ENC[x]","sops":{}}`, ""},
		"readable": {plain,
			"a.json: encryption leaves values readable that may be secret: /k3s_token, /list/0/b, /n"},
		"another name": {
			`{"cluster_name":"dem","nodes":1.5,"k3s_token":"ENC[x]","list":[{"a":null,"b":"ENC[x]"}],"n":"ENC[x]"}`,
			": /cluster_name"},
		"lost field": {
			`{"cluster_name":"demo","k3s_token":"ENC[x]","list":[{"a":null,"b":"ENC[x]"}],"n":"ENC[x]"}`,
			"encryption changes values"},
		"another number": {
			`{"cluster_name":"demo","nodes":1,"k3s_token":"ENC[x]","list":[{"a":null,"b":"ENC[x]"}],"n":"ENC[x]"}`,
			": /nodes"},
		"another list": {`{"cluster_name":"demo","nodes":1.5,"k3s_token":"ENC[x]","list":[],"n":"ENC[x]"}`,
			": /list"},
		"value for null": {
			`{"cluster_name":"demo","nodes":1.5,"k3s_token":"ENC[x]","list":[{"a":"ENC[x]","b":"ENC[x]"}],"n":"ENC[x]"}`, ": /list/0/a"},
	} {
		var asked []sops.EncryptRequest
		got, err := Encrypt(t.Context(), "a.json", []byte(plain), []string{"age1x"}, func(_ context.Context,
			r sops.EncryptRequest) ([]byte, error) {
			asked = append(asked, r)
			return []byte(c.sealed), nil
		})
		if len(asked) != 1 || asked[0].EncryptedRegex != "" ||
			!strings.Contains(asked[0].UnencryptedRegex, "(cluster_name|nodes)") {
			t.Errorf("%s: got requests %v", name, asked)
		}
		if bad, ok := errors.AsType[*EncryptError](err); c.says == "" && (err != nil || string(got) != c.sealed) ||
			c.says != "" &&
				(!ok || !strings.Contains(bad.Error(), c.says) || strings.Contains(bad.Error(), "hunter2")) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
}

// SOPS decrypts integers of 64 bits exactly, and other numbers as floats.
func TestSurvivesEncryptionOfNumbers(t *testing.T) {
	for number, want := range map[string]bool{
		"0": true, "-7": true, "9223372036854775807": true, "1000.0": true, "1e3": true, "1.5": true, "1e17": true,
		"0.1": true, "1e300": true,
		"9223372036854775808": false, "-0": false, "-0.0": false, "1e400": false,
	} {
		was, err := decode([]byte(number))
		if err != nil {
			t.Fatal(err)
		}
		if got := survivesEncryption(was, "ENC[x]"); got != want {
			t.Errorf("%s: got %t, want %t", number, got, want)
		}
	}
}

// FuzzEncrypt checks that any file is refused, or that its encrypted form shows public values only
// and decrypts to an equal file.
func FuzzEncrypt(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, doc := range []string{`{"name":{"":"x"},"versions":{"k3s":[1.5,-0]},"ID":{}}`,
		`{"a":18446744073709551615,"b":[[true,null,""]],"c_unencrypted":"x"}`, `{"cluster_name":"ENC[x]","x":"ENC[x]"}`,
		`0`} {
		f.Add([]byte(doc))
	}
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sealed, err := Encrypt(t.Context(), "x", data, []string{mine.Recipient().String()}, codec.Encrypt)
		if err != nil {
			return
		}
		back, err := codec.Decrypt(t.Context(),
			sops.Request{Data: sealed, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(mine.String())}})
		if err != nil || !Equal(back, data) {
			t.Fatalf("%v: %s\nof %s", err, back, sealed)
		}
		for _, l := range leavesOf(t, data) {
			if v, ok := l.value.(string); ok && !l.isPublic() && len(v) > 20 && strings.Count(string(data), v) == 1 &&
				bytes.Contains(sealed, []byte(v)) {
				t.Fatalf("%s is readable in %s", l.pointer, sealed)
			}
		}
	})
}

func leavesOf(t *testing.T, data []byte) []leaf {
	t.Helper()
	tree, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return leaves(tree)
}
