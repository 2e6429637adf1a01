package verify

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/e2e/cluster/signatures"
	"github.com/ksctl/gitops/stacks/artifact"
)

// notary makes an authority, whose certificate is valid from then on, and who
// trusts it.
func (r *rig) notary(level string, from time.Time, responders ...string) (*signatures.Notary, *Notation) {
	r.t.Helper()
	n, err := signatures.NewNotary(from, responders...)
	r.must(err)
	policy, err := signatures.Policy(level)
	r.must(err)
	client := artifact.NewHTTPClient()
	client.Timeout = time.Minute // a busy machine is slow to say whether a certificate was revoked
	v, err := NewNotation(map[string][]byte{PolicyName: policy, "ca.crt": n.PEM()}, client)
	r.must(err)
	return n, v
}

func recently() time.Time { return time.Now().Add(-45 * time.Minute) }

func TestNotation(t *testing.T) {
	for _, level := range []string{"strict", "permissive"} {
		t.Run("right certificate, "+level, func(t *testing.T) {
			r := newRig(t)
			n, v := r.notary(level, recently())
			r.must(n.Sign(t.Context(), r.a))
			r.signed(v, "CN=signer")
		})
	}
	t.Run("a right one after a wrong one", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently())
		other, _ := r.notary("strict", recently())
		r.must(other.Sign(t.Context(), r.a))
		r.must(n.Sign(t.Context(), r.a))
		r.signed(v, "CN=signer")
	})
	t.Run("unsigned", func(t *testing.T) {
		r := newRig(t)
		_, v := r.notary("strict", recently())
		r.refused(v, Unsigned)
	})
	t.Run("wrong certificate", func(t *testing.T) {
		r := newRig(t)
		_, v := r.notary("permissive", recently())
		other, _ := r.notary("strict", recently())
		r.must(other.Sign(t.Context(), r.a))
		r.refused(v, Untrusted)
	})
	t.Run("signature of another artifact", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently())
		r.must(n.Sign(t.Context(), r.of("other")))
		r.refused(v, Untrusted, "mismatch")
	})
	for _, level := range []string{"strict", "permissive"} {
		t.Run("tampered after signing, "+level, func(t *testing.T) {
			r := newRig(t)
			n, v := r.notary(level, recently())
			r.must(n.Sign(t.Context(), r.tampered()))
			r.refused(v, Untrusted)
		})
	}
	t.Run("expired signature", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently())
		r.must(n.SignFor(t.Context(), r.a, time.Minute))
		r.refused(v, Untrusted, "expired")
	})
	t.Run("signature that is still valid", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently())
		r.must(n.SignFor(t.Context(), r.a, 24*time.Hour))
		r.signed(v, "CN=signer")
	})
	t.Run("expired certificate", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", time.Now().Add(-24*time.Hour))
		r.must(n.Sign(t.Context(), r.a))
		r.refused(v, Untrusted, "expired")
	})
	t.Run("signed by Cosign alone", func(t *testing.T) {
		r := newRig(t)
		_, v := r.notary("strict", recently())
		k, _ := r.key()
		r.must(k.Referring(t.Context(), r.a))
		r.refused(v, Unsigned)
	})
	for name, revoked := range map[string]bool{"a certificate that was revoked": true, "a certificate that was not revoked": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var authority *signatures.Notary
			responder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				says, err := authority.Revocation(revoked)
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(says)
			}))
			defer responder.Close()
			n, v := r.notary("strict", recently(), responder.URL)
			authority = n
			r.must(n.Sign(t.Context(), r.a))
			if revoked {
				r.refused(v, Untrusted, "revoked")
				return
			}
			r.signed(v, "CN=signer")
		})
	}
	t.Run("nobody says whether it was revoked", func(t *testing.T) {
		asked := false
		responder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked = true
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		defer responder.Close()
		r := newRig(t)
		n, v := r.notary("strict", recently(), responder.URL)
		r.must(n.Sign(t.Context(), r.a))
		r.refused(v, Untrusted, "revocation")
		if !asked {
			t.Error("nobody was asked")
		}
	})
	t.Run("the responder is at a link-local address", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently(), "http://169.254.169.254/ocsp")
		r.must(n.Sign(t.Context(), r.a))
		r.refused(v, Untrusted, "revocation")
	})
	t.Run("registry unreachable", func(t *testing.T) {
		r := newRig(t)
		n, v := r.notary("strict", recently())
		r.must(n.Sign(t.Context(), r.a))
		r.unreachable(v)
	})
	t.Run("a policy for other repositories", func(t *testing.T) {
		r := newRig(t)
		n, _ := r.notary("strict", recently())
		r.must(n.Sign(t.Context(), r.a))
		policy, err := signatures.Policy("strict")
		r.must(err)
		policy = []byte(strings.Replace(string(policy), `"*"],"sig`, `"registry.example.com/other"],"sig`, 1))
		v, err := NewNotation(map[string][]byte{PolicyName: policy, "ca.crt": n.PEM()}, nil)
		r.must(err)
		_, err = r.verify(v)
		useless(t, err, "registryScopes")
	})
}

func TestNotationMaterial(t *testing.T) {
	n, err := signatures.NewNotary(recently())
	if err != nil {
		t.Fatal(err)
	}
	policy := func(level string) []byte {
		b, err := signatures.Policy(level)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	logged := func() []byte {
		var p map[string]any
		if err := json.Unmarshal(policy("strict"), &p); err != nil {
			t.Fatal(err)
		}
		p["trustPolicies"].([]any)[0].(map[string]any)["signatureVerification"].(map[string]any)["override"] = map[string]any{"authenticity": "log"}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"no policy":                       {map[string][]byte{"ca.crt": n.PEM()}, PolicyName},
		"policy that is none":             {map[string][]byte{PolicyName: []byte("x"), "ca.crt": n.PEM()}, PolicyName},
		"policy of nothing":               {map[string][]byte{PolicyName: []byte("{}"), "ca.crt": n.PEM()}, PolicyName},
		"policy that skips":               {map[string][]byte{PolicyName: policy("skip"), "ca.crt": n.PEM()}, ""},
		"policy that looks on":            {map[string][]byte{PolicyName: policy("audit"), "ca.crt": n.PEM()}, "authenticity"},
		"policy that trusts anybody":      {map[string][]byte{PolicyName: logged(), "ca.crt": n.PEM()}, "authenticity"},
		"no certificate":                  {map[string][]byte{PolicyName: policy("strict"), "ca.txt": n.PEM()}, ".crt"},
		"certificate that can't be read":  {map[string][]byte{PolicyName: policy("strict"), "ca.pem": []byte("x")}, `"ca.pem"`},
		"key in the place of certificate": {map[string][]byte{PolicyName: policy("strict"), "ca.pem": []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, `"ca.pem"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewNotation(c.secret, nil)
			useless(t, err, c.says)
		})
	}
}
