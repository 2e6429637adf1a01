package pki_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// goldenData returns the data of a Secret that an earlier release wrote. Signatures are random, so
// these files were generated once: an authority at start, its rotation a day later, and two key
// pairs of the first authority.
func goldenData(t *testing.T, name string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		out[key] = golden.Read(t, name+"-"+key)
	}
	return out
}

func goldenAuthority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.ReadAuthority(goldenData(t, name), start.Add(2*day))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return a
}

// TestGoldenAuthorities: the authority of an earlier release is not replaced, because every Cluster
// Autoscaler trusts it.
func TestGoldenAuthorities(t *testing.T) {
	for _, name := range []string{"authority", "rotated"} {
		want := goldenData(t, name)
		if got := secretData(t, goldenAuthority(t, name)); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: the data changed by reading and writing", name)
		}
		if _, changed, err := pki.EnsureAuthority(want, start.Add(2*day)); err != nil || changed {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
	}
	if got := goldenAuthority(t, "rotated").Bundle(); bytes.Count(got, []byte("BEGIN")) != 2 {
		t.Errorf("the previous authority is missing from the bundle:\n%s", got)
	}
}

// TestGoldenKeyPairs: certificates of an earlier release are kept until their renewal is due.
func TestGoldenKeyPairs(t *testing.T) {
	a := goldenAuthority(t, "authority")
	server := pki.ServerSubject("ksctl-gitops.ksctl-gitops-system.svc", "10.0.0.1")
	for name, subject := range map[string]pki.Subject{"client": pki.ClientSubject(prod), "server": server} {
		want := goldenData(t, name)
		p, err := pki.ReadKeyPair(want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := keyPairSecretData(t, a, p); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: the data changed by reading and writing", name)
		}
		if a.RenewalDue(p, subject, start.Add(2*day)) {
			t.Errorf("%s: renewal is due", name)
		}
		if _, changed, err := a.EnsureKeyPair(want, subject, start.Add(2*day)); err != nil || changed {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
	}
	p, err := pki.ReadKeyPair(goldenData(t, "client"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.ClientOf(p.TLS().Leaf); err != nil || got != prod {
		t.Errorf("got client %s, %v", got, err)
	}
}
