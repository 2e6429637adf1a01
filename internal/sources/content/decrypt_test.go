package content

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
)

func mustKeys(t *testing.T, secret map[string][]byte) *Keys {
	t.Helper()
	k, err := NewKeys(secret, []byte("test key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Keys are told from others by what decrypts alone, and tell nothing of themselves.
func TestKeys(t *testing.T) {
	one := mustKeys(t, map[string][]byte{"own.agekey": []byte("AGE-SECRET-KEY-1")})
	if beside := mustKeys(t, map[string][]byte{"own.agekey": []byte("AGE-SECRET-KEY-1"), "README": []byte("x")}); beside.Fingerprint() != one.Fingerprint() {
		t.Error("what is no key changes something")
	}
	seen := map[string]bool{"": true, one.Fingerprint(): true}
	for _, other := range []map[string][]byte{nil, {"own.agekey": []byte("AGE-SECRET-KEY-2")}, {"two.agekey": []byte("AGE-SECRET-KEY-1")}, {"sops.vault-token": []byte("x")}, {"a.asc": []byte("x")}} {
		f := mustKeys(t, other).Fingerprint()
		if seen[f] {
			t.Errorf("%v can't be told from others", other)
		}
		seen[f] = true
	}
	if (*Keys)(nil).Fingerprint() != "" {
		t.Error("none has a fingerprint")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if said := fmt.Sprintf(verb, *one); strings.Contains(said, "AGE-SECRET") {
			t.Errorf("%s: %s", verb, said)
		}
	}
}

// The program that decrypts gets the keys, and nothing else of the Secret.
func TestOpener(t *testing.T) {
	keys := mustKeys(t, map[string][]byte{"own.agekey": []byte("k"), "password": []byte("p")})
	l := &Loader{}
	if l.opener(nil) != nil {
		t.Error("something is decrypted without keys")
	}
	_, err := l.opener(keys)(t.Context(), "a.yaml", sops.YAML, nil)
	if out, ok := RenderOutcome(err, "r1").(reconcile.Retry); !ok || out.Reason != string(sops.Unavailable) {
		t.Errorf("without a program: %+v", err)
	}
	var asked sops.Request
	l.Decrypt = func(_ context.Context, r sops.Request) ([]byte, error) { asked = r; return []byte("plain"), nil }
	got, err := l.opener(keys)(t.Context(), "a.yaml", sops.YAML, []byte("sealed"))
	if err != nil || string(got) != "plain" || asked.Name != "a.yaml" || asked.Format != sops.YAML || string(asked.Data) != "sealed" ||
		len(asked.Secret) != 1 || string(asked.Secret["own.agekey"]) != "k" {
		t.Errorf("%s, %v, %+v", got, err, asked)
	}
}

func TestOutcomesOfDecryption(t *testing.T) {
	met := &stacks.EncryptedError{Files: []stacks.EncryptedFile{{Component: "x", File: "y.yaml"}}}
	err := keyless(met)
	if want := `component "x": file y.yaml: it is encrypted with SOPS, and spec.decryption names no keys`; err.Error() != want {
		t.Errorf("got %s", err)
	}
	if out, ok := RenderOutcome(err, "r1").(reconcile.Stalled); !ok || out.Reason != string(sops.KeyMissing) || out.Revision != "r1" {
		t.Errorf("%+v", out)
	}
	if other := errors.New("x"); keyless(other) != other || keyless(nil) != nil { //nolint:errorlint // the same
		t.Error("another error is changed")
	}
	wrapped := fmt.Errorf("component: %w", &sops.Error{Reason: sops.ServiceFailed, Message: "down"})
	if out, ok := RenderOutcome(wrapped, "r1").(reconcile.Retry); !ok || out.Reason != string(sops.ServiceFailed) {
		t.Errorf("%+v", out)
	}
	if out, ok := RenderOutcome(&KeysNotFoundError{"ns", "age"}, "r1").(reconcile.Retry); !ok || out.Reason != KeysNotFoundReason ||
		out.Err.Error() != "there is no Secret ns/age: make it, or correct spec.decryption.secretRef" {
		t.Errorf("%+v", out)
	}
}
