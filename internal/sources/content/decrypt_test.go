package content

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
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

// The fingerprint depends on the decryption keys alone, and printing Keys does not reveal them.
func TestKeysFingerprint(t *testing.T) {
	one := mustKeys(t, map[string][]byte{"own.agekey": []byte("AGE-SECRET-KEY-1")})
	if withOtherValues := mustKeys(t, map[string][]byte{"own.agekey": []byte("AGE-SECRET-KEY-1"),
		"README": []byte("x")}); withOtherValues.Fingerprint() != one.Fingerprint() {
		t.Error("a value that is not a key changes the fingerprint")
	}
	seen := map[string]bool{"": true, one.Fingerprint(): true}
	for _, other := range []map[string][]byte{nil, {"own.agekey": []byte("AGE-SECRET-KEY-2")},
		{"two.agekey": []byte("AGE-SECRET-KEY-1")}, {"sops.vault-token": []byte("x")}, {"a.asc": []byte("x")}} {
		f := mustKeys(t, other).Fingerprint()
		if seen[f] {
			t.Errorf("%v has the fingerprint of other keys", other)
		}
		seen[f] = true
	}
	if (*Keys)(nil).Fingerprint() != "" {
		t.Error("nil Keys have a fingerprint")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(verb, *one); strings.Contains(printed, "AGE-SECRET") {
			t.Errorf("%s: %s", verb, printed)
		}
	}
}

// The decrypter gets the keys, and no other values of the Secret.
func TestOpener(t *testing.T) {
	keys := mustKeys(t, map[string][]byte{"own.agekey": []byte("k"), "password": []byte("p")})
	l := &Loader{}
	if l.opener(nil) != nil {
		t.Error("an opener without keys")
	}
	_, err := l.opener(keys)(t.Context(), "a.yaml", sops.YAML, nil)
	if out, ok := RenderOutcome(err, "r1").(reconcile.Retry); !ok || out.Reason != string(sops.Unavailable) {
		t.Errorf("without a decrypter: %+v", err)
	}
	var request sops.Request
	l.Decrypt = func(_ context.Context, r sops.Request) ([]byte, error) { request = r; return []byte("plain"), nil }
	got, err := l.opener(keys)(t.Context(), "a.yaml", sops.YAML, []byte("sealed"))
	if err != nil || string(got) != "plain" || request.Name != "a.yaml" || request.Format != sops.YAML ||
		string(request.Data) != "sealed" ||
		len(request.Secret) != 1 || string(request.Secret["own.agekey"]) != "k" {
		t.Errorf("%s, %v, %+v", got, err, request)
	}
}

func TestDecryptionOutcomes(t *testing.T) {
	met := &stacks.EncryptedError{Files: []stacks.EncryptedFile{{Component: "x", File: "y.yaml"}}}
	err := explainMissingKeys(met)
	if want := `component "x": file y.yaml: it is encrypted with SOPS, but spec.decryption names no keys`; err.Error() != want {
		t.Errorf("got %s", err)
	}
	if out, ok := RenderOutcome(err, "r1").(reconcile.Stalled); !ok || out.Reason != string(sops.KeyMissing) ||
		out.Revision != "r1" {
		t.Errorf("%+v", out)
	}
	// nolint:errorlint // the very same error must be returned
	if other := errors.New("x"); explainMissingKeys(other) != other || explainMissingKeys(nil) != nil {
		t.Error("another error was replaced")
	}
	wrapped := fmt.Errorf("component: %w", &sops.Error{Reason: sops.ServiceFailed, Message: "down"})
	if out, ok := RenderOutcome(wrapped, "r1").(reconcile.Retry); !ok || out.Reason != string(sops.ServiceFailed) {
		t.Errorf("%+v", out)
	}
	if out, ok := RenderOutcome(NewKeysNotFoundError("ns", "age"), "r1").(reconcile.Retry); !ok ||
		out.Reason != appsv1.SecretNotFoundReason ||
		out.Err.Error() != "Secret ns/age does not exist: create it or correct spec.decryption.secretRef" {
		t.Errorf("%+v", out)
	}
}
