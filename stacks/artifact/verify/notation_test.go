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

// newNotary returns an authority whose certificate is valid after from, and a verifier that
// trusts it.
func (r *testRegistry) newNotary(level string, from time.Time, responders ...string) (*signatures.Notary, *Notation) {
	r.t.Helper()
	n, err := signatures.NewNotary(from, responders...)
	r.must(err)
	policy, err := signatures.TrustPolicy(level)
	r.must(err)
	client := artifact.NewHTTPClient()
	client.Timeout = time.Minute // on a busy machine the revocation check is slow
	v, err := NewNotation(map[string][]byte{PolicyName: policy, "ca.crt": n.PEM()}, client)
	r.must(err)
	return n, v
}

func recently() time.Time { return time.Now().Add(-45 * time.Minute) }

func TestNotationSignatures(t *testing.T) {
	for _, level := range []string{"strict", "permissive"} {
		t.Run("right certificate, "+level, func(t *testing.T) {
			r := newTestRegistry(t)
			n, v := r.newNotary(level, recently())
			r.must(n.Sign(t.Context(), r.artifact))
			r.expectSigned(v, "CN=signer")
		})
	}
	t.Run("valid signature after an untrusted one", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently())
		other, _ := r.newNotary("strict", recently())
		r.must(other.Sign(t.Context(), r.artifact))
		r.must(n.Sign(t.Context(), r.artifact))
		r.expectSigned(v, "CN=signer")
	})
	t.Run("unsigned", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newNotary("strict", recently())
		r.expectError(v, Unsigned)
	})
	t.Run("wrong certificate", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newNotary("permissive", recently())
		other, _ := r.newNotary("strict", recently())
		r.must(other.Sign(t.Context(), r.artifact))
		r.expectError(v, Untrusted)
	})
	t.Run("signature of another artifact", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently())
		r.must(n.Sign(t.Context(), r.signatureOfOther("other")))
		r.expectError(v, Untrusted, "mismatch")
	})
	for _, level := range []string{"strict", "permissive"} {
		t.Run("tampered after signing, "+level, func(t *testing.T) {
			r := newTestRegistry(t)
			n, v := r.newNotary(level, recently())
			r.must(n.Sign(t.Context(), r.tamperedSignature()))
			r.expectError(v, Untrusted)
		})
	}
	t.Run("expired signature", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently())
		r.must(n.SignWithExpiry(t.Context(), r.artifact, time.Minute))
		r.expectError(v, Untrusted, "expired")
	})
	t.Run("signature that is still valid", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently())
		r.must(n.SignWithExpiry(t.Context(), r.artifact, 24*time.Hour))
		r.expectSigned(v, "CN=signer")
	})
	t.Run("expired certificate", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", time.Now().Add(-24*time.Hour))
		r.must(n.Sign(t.Context(), r.artifact))
		r.expectError(v, Untrusted, "expired")
	})
	t.Run("signed by Cosign alone", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newNotary("strict", recently())
		k, _ := r.newKey()
		r.must(k.SignWithReferrer(t.Context(), r.artifact))
		r.expectError(v, Unsigned)
	})
	for name, revoked := range map[string]bool{"revoked certificate": true, "certificate that is not revoked": false} {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t)
			var authority *signatures.Notary
			responder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				response, err := authority.OCSPResponse(revoked)
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(response)
			}))
			defer responder.Close()
			n, v := r.newNotary("strict", recently(), responder.URL)
			authority = n
			r.must(n.Sign(t.Context(), r.artifact))
			if revoked {
				r.expectError(v, Untrusted, "revoked")
				return
			}
			r.expectSigned(v, "CN=signer")
		})
	}
	t.Run("responder unavailable", func(t *testing.T) {
		requested := false
		responder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requested = true
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		defer responder.Close()
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently(), responder.URL)
		r.must(n.Sign(t.Context(), r.artifact))
		r.expectError(v, Untrusted, "revocation")
		if !requested {
			t.Error("the responder got no request")
		}
	})
	t.Run("responder with a link-local address", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently(), "http://169.254.169.254/ocsp")
		r.must(n.Sign(t.Context(), r.artifact))
		r.expectError(v, Untrusted, "revocation")
	})
	t.Run("registry unreachable", func(t *testing.T) {
		r := newTestRegistry(t)
		n, v := r.newNotary("strict", recently())
		r.must(n.Sign(t.Context(), r.artifact))
		r.expectUnreachable(v)
	})
	t.Run("policy for other repositories", func(t *testing.T) {
		r := newTestRegistry(t)
		n, _ := r.newNotary("strict", recently())
		r.must(n.Sign(t.Context(), r.artifact))
		policy, err := signatures.TrustPolicy("strict")
		r.must(err)
		policy = []byte(strings.Replace(string(policy), `"*"],"sig`, `"registry.example.com/other"],"sig`, 1))
		v, err := NewNotation(map[string][]byte{PolicyName: policy, "ca.crt": n.PEM()}, nil)
		r.must(err)
		_, err = r.verify(v)
		expectMaterialInvalid(t, err, "registryScopes")
	})
}

func TestNewNotationRejectsInvalidSecrets(t *testing.T) {
	n, err := signatures.NewNotary(recently())
	if err != nil {
		t.Fatal(err)
	}
	policy := func(level string) []byte {
		b, err := signatures.TrustPolicy(level)
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
		p["trustPolicies"].([]any)[0].(map[string]any)["signatureVerification"].(map[string]any)["override"] =
			map[string]any{"authenticity": "log"}
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
		"no policy": {map[string][]byte{"ca.crt": n.PEM()}, PolicyName},
		"policy is not JSON": {map[string][]byte{PolicyName: []byte("x"), "ca.crt": n.PEM()},
			PolicyName},
		"empty policy": {map[string][]byte{PolicyName: []byte("{}"), "ca.crt": n.PEM()},
			PolicyName},
		"policy with level skip": {map[string][]byte{PolicyName: policy("skip"), "ca.crt": n.PEM()},
			""},
		"policy with level audit": {map[string][]byte{PolicyName: policy("audit"), "ca.crt": n.PEM()},
			"authenticity"},
		"policy that does not enforce authenticity": {map[string][]byte{PolicyName: logged(), "ca.crt": n.PEM()},
			"authenticity"},
		"no certificate": {map[string][]byte{PolicyName: policy("strict"),
			"ca.txt": n.PEM()}, ".crt"},
		"invalid certificate": {map[string][]byte{PolicyName: policy("strict"),
			"ca.pem": []byte("x")}, `"ca.pem"`},
		"private key instead of a certificate": {map[string][]byte{PolicyName: policy("strict"),
			"ca.pem": []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, `"ca.pem"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewNotation(c.secret, nil)
			expectMaterialInvalid(t, err, c.says)
		})
	}
}
