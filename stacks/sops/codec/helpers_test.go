package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ksctl/gitops/stacks/sops"
)

func newAge(tb testing.TB) *age.X25519Identity {
	tb.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// newPGP returns a new PGP key, and its armored public and private keys.
func newPGP(tb testing.TB) (entity *openpgp.Entity, public, private string) {
	tb.Helper()
	e, err := openpgp.NewEntity("test", "", "test@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		tb.Fatal(err)
	}
	return e, armored(tb, openpgp.PublicKeyType, func(b *bytes.Buffer) error { return e.Serialize(b) }),
		armored(tb, openpgp.PrivateKeyType, func(b *bytes.Buffer) error { return e.SerializePrivate(b, nil) })
}

func armored(tb testing.TB, kind string, body func(*bytes.Buffer) error) string {
	tb.Helper()
	var raw, text bytes.Buffer
	if err := body(&raw); err != nil {
		tb.Fatal(err)
	}
	w, err := armor.Encode(&text, kind, nil)
	if err != nil {
		tb.Fatal(err)
	}
	_, _ = w.Write(raw.Bytes())
	_ = w.Close()
	return text.String() + "\n"
}

// mustKeys returns the Keys of a Secret, from pairs of key and value.
func mustKeys(tb testing.TB, pairs ...string) Keys {
	tb.Helper()
	data := map[string][]byte{}
	for i := 0; i+1 < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	keys, err := KeysFromSecret(data)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func ageKeys(tb testing.TB, ids ...*age.X25519Identity) Keys {
	tb.Helper()
	var lines []string
	for _, id := range ids {
		lines = append(lines, id.String())
	}
	return mustKeys(tb, "keys.agekey", strings.Join(lines, "\n"))
}

// encryptFile encrypts a file with the rules of r.
func encryptFile(plain []byte, f Format, recipients []string, r sops.EncryptRequest) ([]byte, error) {
	r.Data, r.Format, r.Recipients = plain, f, recipients
	return Encrypt(context.Background(), r)
}

// withoutNetwork returns options with which every connection fails.
func withoutNetwork() options {
	o := defaultOptions()
	o.dial = noNetwork
	return o
}

func mustEncrypt(tb testing.TB, plain string, f Format, o sops.EncryptRequest, recipients ...string) []byte {
	tb.Helper()
	b, err := encryptFile([]byte(plain), f, recipients, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustDecrypt(tb testing.TB, file []byte, f Format, keys Keys, o options) string {
	tb.Helper()
	b, err := decrypt(tb.Context(), file, f, keys, o)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// assertError checks that err itself is an *Error, with a reason and a text in its message, and
// that it contains no secret.
func assertError(tb testing.TB, err error, reason Reason, text string, secrets ...string) {
	tb.Helper()
	e, ok := err.(*Error) //nolint:errorlint // the error itself must have this type, not its chain
	if !ok {
		tb.Fatalf("got a %T (%v), want an *Error with %s", err, err, reason)
	}
	if e.Reason != reason || !strings.Contains(e.Message, text) {
		tb.Errorf("got %s (%s), want %s (%s)", e.Reason, e.Message, reason, text)
	}
	assertNoSecrets(tb, err, secrets...)
}

// assertNoSecrets checks that an error contains no secret, in any format.
func assertNoSecrets(tb testing.TB, err error, secrets ...string) {
	tb.Helper()
	all := fmt.Sprintf("%v %+v %#v", err, err, err)
	if b, jerr := json.Marshal(err); jerr == nil {
		all += string(b)
	}
	for _, s := range secrets {
		if s != "" && strings.Contains(all, s) {
			tb.Errorf("the error contains %q: %s", s, all)
		}
	}
}

// replaceFirst replaces the first occurrence of old, and fails the test if there is none.
func replaceFirst(tb testing.TB, file []byte, old, with string) []byte {
	tb.Helper()
	if !bytes.Contains(file, []byte(old)) {
		tb.Fatalf("no %q in\n%s", old, file)
	}
	return bytes.Replace(file, []byte(old), []byte(with), 1)
}

const (
	plainYAML = `# about the file
apiVersion: v1
kind: Secret
stringData:
    # about the password
    password: hunter2-secret # and beside it
    multi: |
        first-secret
        second
    port: 5432
    ratio: 1.5
    on: true
    since: 2026-01-02T03:04:05Z
    empty: ""
    nothing: null
    quoted: "true"
    hosts:
        # about a host
        - alpha-secret
        - beta-secret
# at the end
`
	plainJSON = `{
	"name": "demo",
	"cluster_kubeconfig": "apiVersion: v1\n# <&>\u2028 ünï",
	"count": 12345678901234567,
	"ratio": 0.25,
	"big": 1e3,
	"on": false,
	"none": null,
	"list": [
		"a",
		1,
		[],
		{}
	],
	"nested": {
		"private_key": "key-secret",
		"public_key": "pub"
	}
}
`
	plainDotenv = "# about\nUSER=me\nPASSWORD=hunter2-secret\nMULTI=a\\nb\nEMPTY=\n# end\n"
	plainINI    = "; about\n[first]\nuser     = me\n; about the password\npassword = " +
		"hunter2-secret\n\n[second]\nempty = \n"
	plainBinary = "\x00\x01\xff binary-secret\n"
)

// plainFiles has a file of each format.
var plainFiles = map[Format]string{sops.YAML: plainYAML, sops.JSON: plainJSON, sops.Dotenv: plainDotenv,
	sops.INI: plainINI, sops.Binary: plainBinary}

// noNetwork fails every connection.
func noNetwork(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: io.EOF}
}

// encryptPGP encrypts a data key, as gpg does.
func encryptPGP(t *testing.T, to *openpgp.Entity, key []byte) string {
	t.Helper()
	return strings.TrimSpace(armored(t, pgpMessage, func(b *bytes.Buffer) error {
		w, err := openpgp.Encrypt(b, []*openpgp.Entity{to}, nil, &openpgp.FileHints{IsBinary: true}, nil)
		if err != nil {
			return err
		}
		if _, err := w.Write(key); err != nil {
			return err
		}
		return w.Close()
	}))
}
