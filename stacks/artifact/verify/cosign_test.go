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

// newKey returns a key and a verifier that trusts it.
func (r *testRegistry) newKey() (*signatures.Key, *Cosign) {
	r.t.Helper()
	k, err := signatures.NewKey()
	r.must(err)
	pem, err := k.PEM()
	r.must(err)
	v, err := NewCosignKeys(map[string][]byte{"release.pub": pem, "notes.txt": []byte("not a key")})
	r.must(err)
	return k, v
}

func TestCosignKeySignatures(t *testing.T) {
	type sign func(*signatures.Key, context.Context, signatures.Artifact) error
	for name, by := range map[string]sign{"tag": (*signatures.Key).SignWithTag,
		"referrer": (*signatures.Key).SignWithReferrer} {
		t.Run(name, func(t *testing.T) {
			t.Run("right key", func(t *testing.T) {
				r := newTestRegistry(t)
				k, v := r.newKey()
				r.must(by(k, t.Context(), r.artifact))
				r.expectSigned(v, `"release.pub"`)
			})
			t.Run("one of two keys", func(t *testing.T) {
				r := newTestRegistry(t)
				k, _ := r.newKey()
				other, _ := r.newKey()
				pems := map[string][]byte{}
				for name, k := range map[string]*signatures.Key{"a.pub": other, "b.pub": k} {
					pem, err := k.PEM()
					r.must(err)
					pems[name] = pem
				}
				v, err := NewCosignKeys(pems)
				r.must(err)
				r.must(by(k, t.Context(), r.artifact))
				r.expectSigned(v, `"b.pub"`)
			})
			t.Run("valid signature after an untrusted one", func(t *testing.T) {
				r := newTestRegistry(t)
				k, v := r.newKey()
				other, _ := r.newKey()
				r.must(by(other, t.Context(), r.artifact))
				r.must(by(k, t.Context(), r.artifact))
				r.expectSigned(v, `"release.pub"`)
			})
			t.Run("wrong key", func(t *testing.T) {
				r := newTestRegistry(t)
				k, _ := r.newKey()
				_, v := r.newKey()
				r.must(by(k, t.Context(), r.artifact))
				r.expectError(v, Untrusted, "none of the 1 signatures", "a trusted key")
			})
			t.Run("signature of another artifact", func(t *testing.T) {
				r := newTestRegistry(t)
				k, v := r.newKey()
				r.must(by(k, t.Context(), r.signatureOfOther("other")))
				r.expectError(v, Untrusted)
			})
			t.Run("tampered after signing", func(t *testing.T) {
				r := newTestRegistry(t)
				k, v := r.newKey()
				r.must(by(k, t.Context(), r.tamperedSignature()))
				r.expectError(v, Untrusted)
			})
			t.Run("registry unreachable", func(t *testing.T) {
				r := newTestRegistry(t)
				k, v := r.newKey()
				r.must(by(k, t.Context(), r.artifact))
				r.expectUnreachable(v)
			})
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newKey()
		r.expectError(v, Unsigned, "has no signature")
	})
	t.Run("attestation is not a signature", func(t *testing.T) {
		r := newTestRegistry(t)
		k, v := r.newKey()
		r.must(k.Attest(t.Context(), r.artifact, "https://spdx.dev/Document"))
		r.expectError(v, Untrusted, "attestation")
	})
	t.Run("signed without a key", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newKey()
		s, err := signatures.NewSigstore()
		r.must(err)
		r.must(s.SignWithTag(t.Context(), r.artifact, subject, issuer, time.Minute))
		r.must(s.SignWithReferrer(t.Context(), r.artifact, subject, issuer, time.Minute))
		r.expectError(v, Untrusted, "none of the 2 signatures")
	})
}

func TestNewCosignKeysRejectsInvalidSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"empty Secret":   {nil, ".pub"},
		"no *.pub entry": {map[string][]byte{"cosign.key": []byte("x")}, ".pub"},
		"not PEM":        {map[string][]byte{"cosign.pub": []byte("s3cret")}, `"cosign.pub"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewCosignKeys(c.secret)
			expectMaterialInvalid(t, err, c.says)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

// newKeyless returns a Sigstore instance and a verifier that trusts one of its identities.
func (r *testRegistry) newKeyless(w signatures.TrustedRootOptions,
	identities ...Identity) (*signatures.Sigstore, *Cosign) {
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

func TestCosignKeylessSignatures(t *testing.T) {
	type sign func(*signatures.Sigstore, context.Context, signatures.Artifact, string, string, time.Duration) error
	for name, by := range map[string]sign{"tag": (*signatures.Sigstore).SignWithTag,
		"referrer": (*signatures.Sigstore).SignWithReferrer} {
		t.Run(name, func(t *testing.T) {
			for root, w := range map[string]signatures.TrustedRootOptions{
				"log and timestamps": {}, "log alone": {NoTimestamps: true}, "timestamps alone": {NoLog: true},
			} {
				t.Run("right identity, "+root, func(t *testing.T) {
					r := newTestRegistry(t)
					s, v := r.newKeyless(w)
					r.must(by(s, t.Context(), r.artifact, subject, issuer, time.Minute))
					r.expectSigned(v, subject)
				})
			}
			t.Run("one of two identities", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{}, Identity{"nobody", "nobody"},
					Identity{issuer, subject})
				r.must(by(s, t.Context(), r.artifact, subject, issuer, time.Minute))
				r.expectSigned(v, issuer)
			})
			t.Run("wrong subject", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(s, t.Context(), r.artifact, "mallory@example.com", issuer, time.Minute))
				r.expectError(v, Untrusted, "mallory@example.com")
			})
			t.Run("wrong issuer", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(s, t.Context(), r.artifact, subject, "https://evil.example.com", time.Minute))
				r.expectError(v, Untrusted, "https://evil.example.com")
			})
			t.Run("another authority", func(t *testing.T) {
				r := newTestRegistry(t)
				_, v := r.newKeyless(signatures.TrustedRootOptions{})
				other, _ := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(other, t.Context(), r.artifact, subject, issuer, time.Minute))
				r.expectError(v, Untrusted)
			})
			t.Run("expired certificate", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(s, t.Context(), r.artifact, subject, issuer, time.Hour))
				r.expectError(v, Untrusted, "validity")
			})
			t.Run("certificate in no certificate log", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{CertificateLog: true})
				r.must(by(s, t.Context(), r.artifact, subject, issuer, time.Minute))
				r.expectError(v, Untrusted, "certificate timestamp")
			})
			t.Run("signature of another artifact", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(s, t.Context(), r.signatureOfOther("other"), subject, issuer, time.Minute))
				r.expectError(v, Untrusted)
			})
			for root, w := range map[string]signatures.TrustedRootOptions{"log and timestamps": {},
				"timestamps alone": {NoLog: true}} {
				t.Run("tampered after signing, "+root, func(t *testing.T) {
					r := newTestRegistry(t)
					s, v := r.newKeyless(w)
					r.must(by(s, t.Context(), r.tamperedSignature(), subject, issuer, time.Minute))
					r.expectError(v, Untrusted)
				})
			}
			t.Run("registry unreachable", func(t *testing.T) {
				r := newTestRegistry(t)
				s, v := r.newKeyless(signatures.TrustedRootOptions{})
				r.must(by(s, t.Context(), r.artifact, subject, issuer, time.Minute))
				r.expectUnreachable(v)
			})
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newKeyless(signatures.TrustedRootOptions{})
		r.expectError(v, Unsigned)
	})
	t.Run("signed by a key", func(t *testing.T) {
		r := newTestRegistry(t)
		_, v := r.newKeyless(signatures.TrustedRootOptions{})
		k, _ := r.newKey()
		r.must(k.SignWithTag(t.Context(), r.artifact))
		r.must(k.SignWithReferrer(t.Context(), r.artifact))
		r.expectError(v, Untrusted, "none of the 2 signatures")
	})
}

func TestNewCosignKeylessRejectsInvalidMaterial(t *testing.T) {
	s, err := signatures.NewSigstore()
	if err != nil {
		t.Fatal(err)
	}
	one := []Identity{{Issuer: "x", Subject: "y"}}
	for name, c := range map[string]struct {
		root       signatures.TrustedRootOptions
		identities []Identity
		says       string
	}{
		"no authority": {signatures.TrustedRootOptions{NoAuthority: true}, one,
			"no certificate authority"},
		"no log and no timestamp authority": {signatures.TrustedRootOptions{NoLog: true, NoTimestamps: true}, one,
			"neither"},
		"no identity": {signatures.TrustedRootOptions{}, nil, "matchOIDCIdentity"},
		"invalid regular expression": {signatures.TrustedRootOptions{}, []Identity{{Issuer: "(", Subject: "y"}},
			"matchOIDCIdentity[0]"},
		"identity without a subject": {signatures.TrustedRootOptions{}, []Identity{{Issuer: "x"}},
			"matchOIDCIdentity[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := s.TrustedRoot(c.root)
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewCosignKeyless(root, c.identities)
			expectMaterialInvalid(t, err, c.says)
		})
	}
	_, err = NewCosignKeyless([]byte("{"), one)
	expectMaterialInvalid(t, err, "trusted root")
}

// In a registry without the referrers API, the list of referrers is stored under a tag.
func TestVerifyInRegistryWithoutReferrersAPI(t *testing.T) {
	r := newTestRegistry(t)
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	old := httptest.NewServer(inner)
	defer old.Close()
	r.artifact.Repository = strings.TrimPrefix(old.URL, "http://") + "/team/fleet"
	ref, err := name.NewTag(r.artifact.Repository + ":main")
	r.must(err)
	r.must(remote.Write(ref, empty.Image))
	digest, err := empty.Image.Digest()
	r.must(err)
	r.artifact.Digest = digest.String()

	k, byKey := r.newKey()
	n, byCertificate := r.newNotary("strict", recently())
	r.expectError(byKey, Unsigned)
	r.expectError(byCertificate, Unsigned)
	r.must(k.SignWithReferrer(t.Context(), r.artifact))
	r.must(n.Sign(t.Context(), r.artifact))
	r.expectSigned(byKey, "release.pub")
	r.expectSigned(byCertificate, "CN=signer")
}

func TestVerifyBoundsSignatureCount(t *testing.T) {
	r := newTestRegistry(t)
	k, v := r.newKey()
	other, _ := r.newKey()
	for range maxSignatures {
		r.must(other.SignWithTag(t.Context(), r.artifact))
	}
	r.must(k.SignWithTag(t.Context(), r.artifact))
	r.expectError(v, Untrusted, "none of the 32 signatures")
}

func TestVerifyRejectsLargeSignature(t *testing.T) {
	r := newTestRegistry(t)
	k, v := r.newKey()
	r.must(k.Attest(t.Context(), r.artifact, strings.Repeat("x", maxSignatureBytes)))
	r.expectError(v, Untrusted, "at most 2097152 are allowed")
}
