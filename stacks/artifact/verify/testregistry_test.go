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

// rig is a registry with an artifact, that nobody has signed.
type rig struct {
	t      *testing.T
	server *registry.Server
	a      signatures.Artifact
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	r := &rig{t: t, server: server, a: signatures.Artifact{Repository: server.Host() + "/team/fleet"}}
	r.a.Digest = r.push("main")
	return r
}

// push gives the digest of an artifact with that content.
func (r *rig) push(content string) string {
	r.t.Helper()
	digest, err := r.server.Push(r.t.Context(), "team/fleet", content, fstest.MapFS{"a": {Data: []byte(content)}}, "main")
	r.must(err)
	return digest
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// of is a signature of another artifact, put beside this one.
func (r *rig) of(content string) signatures.Artifact {
	a := r.a
	a.Of = r.push(content)
	return a
}

// tampered is a signature of another artifact, in which somebody has put this one
// in its place.
func (r *rig) tampered() signatures.Artifact {
	a := r.of("other")
	a.Tampered = true
	return a
}

func (r *rig) verify(v Verifier) (string, error) {
	r.t.Helper()
	repo, err := oci.NewClient(oci.Options{Backoff: time.Nanosecond}).Repository(oci.Scheme+r.a.Repository, oci.Access{Insecure: true})
	r.must(err)
	defer repo.Close()
	return v.Verify(r.t.Context(), repo, r.a.Digest)
}

// signed expects the artifact to be signed by somebody.
func (r *rig) signed(v Verifier, by string) {
	r.t.Helper()
	got, err := r.verify(v)
	if err != nil || !strings.Contains(got, by) {
		r.t.Errorf("got %q %v, want it to be signed by %s", got, err, by)
	}
}

// refused expects the artifact not to be taken, for a reason that says all of these.
func (r *rig) refused(v Verifier, reason Reason, says ...string) {
	r.t.Helper()
	got, err := r.verify(v)
	e, ok := errors.AsType[*Error](err)
	if got != "" || !ok || e.Reason != reason || e.Terminal() {
		r.t.Fatalf("got %q %T %v, want %s", got, err, err, reason)
	}
	for _, s := range append(says, r.a.Digest) {
		if !strings.Contains(err.Error(), s) {
			r.t.Errorf("%q does not say %q", err, s)
		}
	}
}

// unreachable expects the registry to be blamed.
func (r *rig) unreachable(v Verifier) {
	r.t.Helper()
	r.must(r.server.Close())
	got, err := r.verify(v)
	e, ok := errors.AsType[*oci.Error](err)
	if got != "" || !ok || e.Reason != oci.OperationFailed || e.Terminal() {
		r.t.Errorf("got %q %T %v", got, err, err)
	}
}

func useless(t *testing.T, err error, says string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != MaterialInvalid || !e.Terminal() || !strings.Contains(err.Error(), says) {
		t.Errorf("got %T %v, want %s that says %q", err, err, MaterialInvalid, says)
	}
}
