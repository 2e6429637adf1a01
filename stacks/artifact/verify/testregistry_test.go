package verify

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/cluster/signatures"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	subject = "release@example.com"
	issuer  = "https://accounts.example.com"
)

// testRegistry is a registry with an unsigned artifact.
type testRegistry struct {
	t        *testing.T
	server   *registry.Server
	artifact signatures.Artifact
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	server, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	r := &testRegistry{t: t, server: server, artifact: signatures.Artifact{Repository: server.Host() + "/team/fleet"}}
	r.artifact.Digest = r.push("main")
	return r
}

// push pushes an artifact with the content and returns its digest.
func (r *testRegistry) push(content string) string {
	r.t.Helper()
	digest, err := r.server.Push(r.t.Context(), "team/fleet", content, fstest.MapFS{"a": {Data: []byte(content)}},
		"main")
	r.must(err)
	return digest
}

func (r *testRegistry) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// signatureOfOther is a target that attaches the signature of another artifact to this one.
func (r *testRegistry) signatureOfOther(content string) signatures.Artifact {
	a := r.artifact
	a.SignedDigest = r.push(content)
	return a
}

// tamperedSignature is a target that attaches the signature of another artifact, with the
// digest in the payload replaced by the digest of this one.
func (r *testRegistry) tamperedSignature() signatures.Artifact {
	a := r.signatureOfOther("other")
	a.Tampered = true
	return a
}

func (r *testRegistry) verify(v Verifier) (string, error) {
	r.t.Helper()
	repo, err := oci.NewClient(oci.Options{Backoff: time.Nanosecond}).
		Repository(oci.Scheme+r.artifact.Repository, oci.Access{Insecure: true})
	r.must(err)
	defer repo.Close()
	return v.Verify(r.t.Context(), repo, r.artifact.Digest)
}

// expectSigned expects a valid signature by a signer.
func (r *testRegistry) expectSigned(v Verifier, by string) {
	r.t.Helper()
	got, err := r.verify(v)
	if err != nil || !strings.Contains(got, by) {
		r.t.Errorf("got %q %v, want the signer %s", got, err, by)
	}
}

// expectError expects an error with the reason, whose message contains all of says and the
// digest.
func (r *testRegistry) expectError(v Verifier, reason Reason, says ...string) {
	r.t.Helper()
	got, err := r.verify(v)
	e, ok := errors.AsType[*Error](err)
	if got != "" || !ok || e.Reason != reason || e.Terminal() {
		r.t.Fatalf("got %q %T %v, want %s", got, err, err, reason)
	}
	for _, s := range append(says, r.artifact.Digest) {
		if !strings.Contains(err.Error(), s) {
			r.t.Errorf("%q does not contain %q", err, s)
		}
	}
}

// expectUnreachable stops the registry and expects an error of the registry.
func (r *testRegistry) expectUnreachable(v Verifier) {
	r.t.Helper()
	r.must(r.server.Close())
	got, err := r.verify(v)
	e, ok := errors.AsType[*oci.Error](err)
	if got != "" || !ok || e.Reason != oci.OperationFailed || e.Terminal() {
		r.t.Errorf("got %q %T %v", got, err, err)
	}
}

func expectMaterialInvalid(t *testing.T, err error, says string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != MaterialInvalid || !e.Terminal() || !strings.Contains(err.Error(), says) {
		t.Errorf("got %T %v, want %s with %q", err, err, MaterialInvalid, says)
	}
}
