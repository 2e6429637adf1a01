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

// newPGP makes a key, and gives its public and private halves, armored.
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

// keysOf reads a Secret of pairs of key and value.
func keysOf(tb testing.TB, pairs ...string) Keys {
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
	return keysOf(tb, "keys.agekey", strings.Join(lines, "\n"))
}

func encrypted(tb testing.TB, plain string, f Format, o EncryptOptions, recipients ...string) []byte {
	tb.Helper()
	b, err := Encrypt([]byte(plain), f, recipients, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func decrypts(tb testing.TB, file []byte, f Format, keys Keys, o Options) string {
	tb.Helper()
	b, err := Decrypt(tb.Context(), file, f, keys, o)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// refused checks that err has a reason, names what is said, and that every error
// is ours and shows none of the secrets.
func refused(tb testing.TB, err error, reason Reason, says string, secrets ...string) {
	tb.Helper()
	e, ok := err.(*Error) //nolint:errorlint // it has to be this one
	if !ok {
		tb.Fatalf("the error is a %T (%v), want %s", err, err, reason)
	}
	if e.Reason != reason || !strings.Contains(e.Message, says) {
		tb.Errorf("failed with %s (%s), want %s (%s)", e.Reason, e.Message, reason, says)
	}
	silent(tb, err, secrets...)
}

// silent checks that an error shows none of the secrets.
func silent(tb testing.TB, err error, secrets ...string) {
	tb.Helper()
	all := fmt.Sprintf("%v %+v %#v", err, err, err)
	if b, jerr := json.Marshal(err); jerr == nil {
		all += string(b)
	}
	for _, s := range secrets {
		if s != "" && strings.Contains(all, s) {
			tb.Errorf("the error shows %q: %s", s, all)
		}
	}
}

// changed replaces the first of old, which has to be there.
func changed(tb testing.TB, file []byte, old, with string) []byte {
	tb.Helper()
	if !bytes.Contains(file, []byte(old)) {
		tb.Fatalf("%q is not in\n%s", old, file)
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
	plainINI    = "; about\n[first]\nuser     = me\n; about the password\npassword = hunter2-secret\n\n[second]\nempty = \n"
	plainBinary = "\x00\x01\xff binary-secret\n"
)

// plains has a file of each format.
var plains = map[Format]string{sops.YAML: plainYAML, sops.JSON: plainJSON, sops.Dotenv: plainDotenv, sops.INI: plainINI, sops.Binary: plainBinary}

// noNetwork fails every connection.
func noNetwork(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: io.EOF}
}

// sealedPGP is a data key as gpg encrypts it.
func sealedPGP(t *testing.T, to *openpgp.Entity, key []byte) string {
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
