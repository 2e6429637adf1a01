package verify

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/e2e/cluster/signatures"
)

// key makes a key and who trusts it.
func (r *rig) key() (*signatures.Key, *Cosign) {
	r.t.Helper()
	k, err := signatures.NewKey()
	r.must(err)
	pem, err := k.PEM()
	r.must(err)
	v, err := NewCosignKeys(map[string][]byte{"release.pub": pem, "notes.txt": []byte("not a key")})
	r.must(err)
	return k, v
}

func TestCosignKey(t *testing.T) {
	type sign func(*signatures.Key, context.Context, signatures.Artifact) error
	for name, by := range map[string]sign{"beside": (*signatures.Key).Beside, "referring": (*signatures.Key).Referring} {
		t.Run(name, func(t *testing.T) {
			t.Run("right key", func(t *testing.T) {
				r := newRig(t)
				k, v := r.key()
				r.must(by(k, t.Context(), r.a))
				r.signed(v, `"release.pub"`)
			})
			t.Run("one of two keys", func(t *testing.T) {
				r := newRig(t)
				k, _ := r.key()
				other, _ := r.key()
				pems := map[string][]byte{}
				for name, k := range map[string]*signatures.Key{"a.pub": other, "b.pub": k} {
					pem, err := k.PEM()
					r.must(err)
					pems[name] = pem
				}
				v, err := NewCosignKeys(pems)
				r.must(err)
				r.must(by(k, t.Context(), r.a))
				r.signed(v, `"b.pub"`)
			})
			t.Run("a right one after a wrong one", func(t *testing.T) {
				r := newRig(t)
				k, v := r.key()
				other, _ := r.key()
				r.must(by(other, t.Context(), r.a))
				r.must(by(k, t.Context(), r.a))
				r.signed(v, `"release.pub"`)
			})
			t.Run("wrong key", func(t *testing.T) {
				r := newRig(t)
				k, _ := r.key()
				_, v := r.key()
				r.must(by(k, t.Context(), r.a))
				r.refused(v, Untrusted, "none of the 1 signatures", "a key that is trusted")
			})
			t.Run("signature of another artifact", func(t *testing.T) {
				r := newRig(t)
				k, v := r.key()
				r.must(by(k, t.Context(), r.of("other")))
				r.refused(v, Untrusted)
			})
			t.Run("tampered after signing", func(t *testing.T) {
				r := newRig(t)
				k, v := r.key()
				r.must(by(k, t.Context(), r.tampered()))
				r.refused(v, Untrusted)
			})
			t.Run("registry unreachable", func(t *testing.T) {
				r := newRig(t)
				k, v := r.key()
				r.must(by(k, t.Context(), r.a))
				r.unreachable(v)
			})
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		r := newRig(t)
		_, v := r.key()
		r.refused(v, Unsigned, "has no signature")
	})
	t.Run("an attestation is no signature", func(t *testing.T) {
		r := newRig(t)
		k, v := r.key()
		r.must(k.Attest(t.Context(), r.a, "https://spdx.dev/Document"))
		r.refused(v, Untrusted, "attestation")
	})
	t.Run("signed without a key", func(t *testing.T) {
		r := newRig(t)
		_, v := r.key()
		s, err := signatures.NewSigstore()
		r.must(err)
		r.must(s.Beside(t.Context(), r.a, subject, issuer, time.Minute))
		r.must(s.Referring(t.Context(), r.a, subject, issuer, time.Minute))
		r.refused(v, Untrusted, "none of the 2 signatures")
	})
}

func TestCosignKeyMaterial(t *testing.T) {
	for name, c := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"nothing":    {nil, ".pub"},
		"other name": {map[string][]byte{"cosign.key": []byte("x")}, ".pub"},
		"not PEM":    {map[string][]byte{"cosign.pub": []byte("s3cret")}, `"cosign.pub"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewCosignKeys(c.secret)
			useless(t, err, c.says)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("tells the secret: %v", err)
			}
		})
	}
}

// keyless makes authorities and who trusts one identity of theirs.
func (r *rig) keyless(w signatures.Without, identities ...Identity) (*signatures.Sigstore, *Cosign) {
	r.t.Helper()
	s, err := signatures.NewSigstore()
	r.must(err)
	root, err := s.TrustedRoot(w)
	r.must(err)
	if identities == nil {
		identities = []Identity{{Issuer: "^https://accounts\\.example\\.com$", Subject: "^release@example\\.com$"}}
	}
	v, err := NewCosignKeyless(root, identities)
	r.must(err)
	return s, v
}

func TestCosignKeyless(t *testing.T) {
	type sign func(*signatures.Sigstore, context.Context, signatures.Artifact, string, string, time.Duration) error
	for name, by := range map[string]sign{"beside": (*signatures.Sigstore).Beside, "referring": (*signatures.Sigstore).Referring} {
		t.Run(name, func(t *testing.T) {
			for root, w := range map[string]signatures.Without{
				"log and timestamps": {}, "log alone": {Timestamps: true}, "timestamps alone": {Log: true},
			} {
				t.Run("right identity, "+root, func(t *testing.T) {
					r := newRig(t)
					s, v := r.keyless(w)
					r.must(by(s, t.Context(), r.a, subject, issuer, time.Minute))
					r.signed(v, subject)
				})
			}
			t.Run("one of two identities", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{}, Identity{"nobody", "nobody"}, Identity{issuer, subject})
				r.must(by(s, t.Context(), r.a, subject, issuer, time.Minute))
				r.signed(v, issuer)
			})
			t.Run("wrong subject", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{})
				r.must(by(s, t.Context(), r.a, "mallory@example.com", issuer, time.Minute))
				r.refused(v, Untrusted, "mallory@example.com")
			})
			t.Run("wrong issuer", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{})
				r.must(by(s, t.Context(), r.a, subject, "https://evil.example.com", time.Minute))
				r.refused(v, Untrusted, "https://evil.example.com")
			})
			t.Run("another authority", func(t *testing.T) {
				r := newRig(t)
				_, v := r.keyless(signatures.Without{})
				other, _ := r.keyless(signatures.Without{})
				r.must(by(other, t.Context(), r.a, subject, issuer, time.Minute))
				r.refused(v, Untrusted)
			})
			t.Run("expired certificate", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{})
				r.must(by(s, t.Context(), r.a, subject, issuer, time.Hour))
				r.refused(v, Untrusted, "validity")
			})
			t.Run("certificate that no certificate log knows", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{CertificateLog: true})
				r.must(by(s, t.Context(), r.a, subject, issuer, time.Minute))
				r.refused(v, Untrusted, "certificate timestamp")
			})
			t.Run("signature of another artifact", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{})
				r.must(by(s, t.Context(), r.of("other"), subject, issuer, time.Minute))
				r.refused(v, Untrusted)
			})
			for root, w := range map[string]signatures.Without{"log and timestamps": {}, "timestamps alone": {Log: true}} {
				t.Run("tampered after signing, "+root, func(t *testing.T) {
					r := newRig(t)
					s, v := r.keyless(w)
					r.must(by(s, t.Context(), r.tampered(), subject, issuer, time.Minute))
					r.refused(v, Untrusted)
				})
			}
			t.Run("registry unreachable", func(t *testing.T) {
				r := newRig(t)
				s, v := r.keyless(signatures.Without{})
				r.must(by(s, t.Context(), r.a, subject, issuer, time.Minute))
				r.unreachable(v)
			})
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		r := newRig(t)
		_, v := r.keyless(signatures.Without{})
		r.refused(v, Unsigned)
	})
	t.Run("signed by a key", func(t *testing.T) {
		r := newRig(t)
		_, v := r.keyless(signatures.Without{})
		k, _ := r.key()
		r.must(k.Beside(t.Context(), r.a))
		r.must(k.Referring(t.Context(), r.a))
		r.refused(v, Untrusted, "none of the 2 signatures")
	})
}

func TestCosignKeylessMaterial(t *testing.T) {
	s, err := signatures.NewSigstore()
	if err != nil {
		t.Fatal(err)
	}
	one := []Identity{{Issuer: "x", Subject: "y"}}
	for name, c := range map[string]struct {
		root       signatures.Without
		identities []Identity
		says       string
	}{
		"no authority":          {signatures.Without{Authority: true}, one, "no certificate authority"},
		"nothing tells a time":  {signatures.Without{Log: true, Timestamps: true}, one, "neither"},
		"no identity":           {signatures.Without{}, nil, "matchOIDCIdentity"},
		"not an expression":     {signatures.Without{}, []Identity{{Issuer: "(", Subject: "y"}}, "matchOIDCIdentity[0]"},
		"an identity of nobody": {signatures.Without{}, []Identity{{Issuer: "x"}}, "matchOIDCIdentity[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := s.TrustedRoot(c.root)
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewCosignKeyless(root, c.identities)
			useless(t, err, c.says)
		})
	}
	_, err = NewCosignKeyless([]byte("{"), one)
	useless(t, err, "trusted root")
}

// A registry that does not know referrers keeps their list under a tag.
func TestRegistryWithoutReferrers(t *testing.T) {
	r := newRig(t)
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	old := httptest.NewServer(inner)
	defer old.Close()
	r.a.Repository = strings.TrimPrefix(old.URL, "http://") + "/team/fleet"
	ref, err := name.NewTag(r.a.Repository + ":main")
	r.must(err)
	r.must(remote.Write(ref, empty.Image))
	digest, err := empty.Image.Digest()
	r.must(err)
	r.a.Digest = digest.String()

	k, byKey := r.key()
	n, byCertificate := r.notary("strict", recently())
	r.refused(byKey, Unsigned)
	r.refused(byCertificate, Unsigned)
	r.must(k.Referring(t.Context(), r.a))
	r.must(n.Sign(t.Context(), r.a))
	r.signed(byKey, "release.pub")
	r.signed(byCertificate, "CN=signer")
}

func TestSignaturesAreBounded(t *testing.T) {
	r := newRig(t)
	k, v := r.key()
	other, _ := r.key()
	for range maxSignatures {
		r.must(other.Beside(t.Context(), r.a))
	}
	r.must(k.Beside(t.Context(), r.a))
	r.refused(v, Untrusted, "none of the 32 signatures")
}

func TestSignatureThatIsTooLarge(t *testing.T) {
	r := newRig(t)
	k, v := r.key()
	r.must(k.Attest(t.Context(), r.a, strings.Repeat("x", signatureBytes)))
	r.refused(v, Untrusted, "at most 2097152 are allowed")
}
