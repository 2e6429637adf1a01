package pki_test

import (
	"bytes"
	"maps"
	"testing"

	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// goldenData is the data of a Secret that an earlier release wrote. Signatures are random, so these
// files were generated once: an authority at start, the next one a day later, and two pairs of the
// first one.
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

// The authority of an earlier release is not replaced: every Cluster Autoscaler trusts it.
func TestGoldenAuthorities(t *testing.T) {
	for _, name := range []string{"authority", "rotated"} {
		want := goldenData(t, name)
		if got := data(t, goldenAuthority(t, name)); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: it is written as another one", name)
		}
		if _, changed, err := pki.Keep(want, start.Add(2*day)); err != nil || changed {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
	}
	if got := goldenAuthority(t, "rotated").Bundle(); bytes.Count(got, []byte("BEGIN")) != 2 {
		t.Errorf("the authority before is not trusted any more:\n%s", got)
	}
}

// Certificates of an earlier release are not issued again before they are due.
func TestGoldenPairs(t *testing.T) {
	a := goldenAuthority(t, "authority")
	server := pki.Server("ksctl-gitops.ksctl-gitops-system.svc", "10.0.0.1")
	for name, subject := range map[string]pki.Subject{"client": pki.Client(prod), "server": server} {
		want := goldenData(t, name)
		p, err := pki.ReadPair(want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := pairData(t, a, p); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: it is written as another one", name)
		}
		if a.Due(p, subject, start.Add(2*day)) {
			t.Errorf("%s: it is issued again", name)
		}
		if _, changed, err := a.Renew(want, subject, start.Add(2*day)); err != nil || changed {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
	}
	p, err := pki.ReadPair(goldenData(t, "client"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.ClientOf(p.Leaf()); err != nil || got != prod {
		t.Errorf("it is of %s, %v", got, err)
	}
}
