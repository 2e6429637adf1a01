package source

import (
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// newSigner creates a key. push moves main to a new commit that sign signs.
func (r *sourceTest) newSigner() (public string, push func(body string,
	sign gitserver.SignFunc) string, sign gitserver.SignFunc) {
	r.t.Helper()
	k, err := gitserver.NewKey("")
	if err != nil {
		r.t.Fatal(err)
	}
	push = func(body string, sign gitserver.SignFunc) string {
		r.t.Helper()
		id := r.commit(map[string]string{"a": body})
		id, err := r.repo.SignCommit(r.t.Context(), id, body, sign)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := r.repo.SetBranch(r.t.Context(), "main", id); err != nil {
			r.t.Fatal(err)
		}
		return id
	}
	return k.Public, push, k.Sign
}

func TestOnlySignedCommitsAreUsed(t *testing.T) {
	r := newSourceTest(t)
	public, push, sign := r.newSigner()
	other, _, _ := r.newSigner()
	unsigned := func([]byte) ([]byte, error) { return nil, nil }
	first := push("1", sign)
	r.obj.Spec.Git.Verify = &appsv1.GitVerification{SecretRef: *ref("keys")}
	r.failed(appsv1.SecretNotFoundReason)
	r.secret("keys", nil)
	r.stalled(gitsecret.InvalidReason)
	r.secret("keys", map[string]string{"dev.pub": public})
	d := r.done()
	if r.obj.Status.SourceVerificationMode != appsv1.VerifyHEAD || !strings.Contains(d.Message, "verified") {
		t.Errorf("mode %q, message %q", r.obj.Status.SourceVerificationMode, d.Message)
	}
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests for a verified commit, want 1", n)
	}

	push("2", unsigned)
	r.failed(string(git.SignatureMissing))
	if got := r.obj.Status.Artifact.Revision; got != "main@sha1:"+first || r.content("a") != "1" {
		t.Errorf("the verified artifact is replaced by %s", got)
	}
	push("3", sign)
	r.done()

	// Signatures of the first key are not valid when only another key is trusted.
	before := r.obj.Status.Artifact.DeepCopy()
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	r.secret("keys", map[string]string{"dev.pub": public + other})
	r.done()
	if after := r.obj.Status.Artifact; !after.LastUpdateTime.Equal(&before.LastUpdateTime) ||
		after.Digest != before.Digest {
		t.Errorf("the artifact changes when it is verified again: %+v", after)
	}
	r.secret("keys", map[string]string{"dev.pub": other})
	r.failed(string(git.SignerUnknown))
	if r.obj.Status.Artifact != nil || len(r.storedFiles()) > 0 {
		t.Errorf("still offers %+v and stores %v", r.obj.Status.Artifact, r.storedFiles())
	}
	r.failed(string(git.SignerUnknown))
}

func TestUnverifiedArtifactIsWithdrawn(t *testing.T) {
	r := newSourceTest(t)
	public, _, _ := r.newSigner()
	r.commit(map[string]string{"a": "unsigned"})
	r.done()
	r.obj.Spec.Git.Verify = &appsv1.GitVerification{SecretRef: *ref("keys")}
	r.secret("keys", map[string]string{"dev.pub": public})
	r.failed(string(git.SignatureMissing))
	if r.obj.Status.Artifact != nil || len(r.storedFiles()) > 0 {
		t.Error("an unsigned artifact stays")
	}
	r.obj.Spec.Git.Verify = nil
	r.done()
	if r.obj.Status.SourceVerificationMode != "" || r.obj.Status.ObservedContent != "" {
		t.Errorf("status %+v", r.obj.Status)
	}

	// Also if the keys are missing.
	r.obj.Spec.Git.Verify = &appsv1.GitVerification{SecretRef: *ref("nothing")}
	r.failed(appsv1.SecretNotFoundReason)
	if r.obj.Status.Artifact != nil {
		t.Error("an unverified artifact stays")
	}
}

func TestOutageKeepsVerifiedArtifact(t *testing.T) {
	r := newSourceTest(t)
	public, push, sign := r.newSigner()
	push("1", sign)
	r.obj.Spec.Git.Verify = &appsv1.GitVerification{SecretRef: *ref("keys")}
	r.secret("keys", map[string]string{"dev.pub": public})
	r.done()
	r.obj.Spec.Git.URL = "http://127.0.0.1:1/x.git"
	r.failed(string(git.OperationFailed))
	r.obj.Spec.Git.Verify.SecretRef.Name = "nothing"
	r.failed(appsv1.SecretNotFoundReason)
	if r.obj.Status.Artifact == nil || r.content("a") != "1" {
		t.Error("the verified artifact is lost")
	}
}

func TestTagSignatures(t *testing.T) {
	r := newSourceTest(t)
	public, push, sign := r.newSigner()
	_, _, untrusted := r.newSigner()
	r.secret("keys", map[string]string{"dev.pub": public})
	id := push("1", sign)
	tag := func(sign gitserver.SignFunc) {
		t.Helper()
		if _, err := r.repo.SignTag(t.Context(), "v1.0.0", id, sign); err != nil {
			t.Fatal(err)
		}
	}
	tag(sign)
	r.obj.Spec.Git.Ref = &appsv1.GitRef{SemVer: "1.x"}
	r.obj.Spec.Git.Verify = &appsv1.GitVerification{Mode: appsv1.VerifyTagAndHEAD, SecretRef: *ref("keys")}
	r.done()
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests for a verified tag, want 1", n)
	}
	// The same commit with a tag that an untrusted key signed.
	tag(untrusted)
	r.failed(string(git.SignerUnknown))
	if r.obj.Status.Artifact != nil {
		t.Error("an artifact with an untrusted tag stays")
	}
	tag(sign)
	r.done()
	id = push("2", untrusted)
	tag(sign)
	r.failed(string(git.SignerUnknown))
	if got := r.content("a"); got != "1" {
		t.Errorf("got %q", got)
	}
	r.obj.Spec.Git.Verify.Mode = appsv1.VerifyTag
	r.done()
	if got := r.content("a"); got != "2" || r.obj.Status.SourceVerificationMode != appsv1.VerifyTag {
		t.Errorf("got %q, mode %s", got, r.obj.Status.SourceVerificationMode)
	}
	r.tag("v1.0.1", id)
	r.failed(string(git.SignatureMissing))
}

func TestChangesOfIgnoredFilesKeepArtifact(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a", "docs/x": "1", ".sourceignore": "/docs\n"})
	r.obj.Spec.Ignore = "*.md\n"
	r.done()
	before, kept := r.obj.Status.Artifact.DeepCopy(), r.storedFiles()
	if len(kept) != 1 || r.content("docs/x") != "" || r.content(".sourceignore") != "" {
		t.Errorf("stored %v", kept)
	}
	id := r.commit(map[string]string{"docs/x": "2", "README.md": "3"})
	r.done()
	after := r.obj.Status.Artifact
	if after.Revision != "main@sha1:"+id || after.Digest != before.Digest || after.URL != before.URL ||
		len(r.storedFiles()) != 1 {
		t.Errorf("was %+v, is %+v, stored %v", before, after, r.storedFiles())
	}
	// Another spec.ignore for the same commit.
	r.obj.Spec.Ignore = ""
	r.done()
	if got := r.content("README.md"); got != "3" || r.obj.Status.Artifact.Digest == before.Digest {
		t.Errorf("got %q", got)
	}
	r.obj.Spec.Ignore = "[a"
	if message := r.stalledMessage(string(artifact.IgnoreInvalid)); !strings.Contains(message, "line 1") {
		t.Errorf("got %s", message)
	}
}
