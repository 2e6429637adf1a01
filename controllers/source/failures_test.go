package source

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

func TestPathAndDigestOfStatusAreNotTrusted(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	r.done()
	want := r.obj.Status.Artifact.DeepCopy()
	r.obj.Status.Artifact.Path = "../../etc/passwd"
	r.obj.Status.Artifact.Digest = "sha256:../../../etc/passwd"
	r.done()
	if got := r.obj.Status.Artifact; got.Digest != want.Digest || got.Path != want.Path {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestGitFailures(t *testing.T) {
	t.Run("branch not found", func(t *testing.T) {
		r := newSourceTest(t)
		r.commit(map[string]string{"a": "a"})
		r.obj.Spec.Git.Ref = &appsv1.GitRef{Branch: "mian"}
		if message := r.failed(string(git.BranchNotFound)); !strings.Contains(message, `"main"`) {
			t.Errorf("the error does not suggest the branch: %s", message)
		}
		if r.obj.Status.Artifact != nil {
			t.Error("the status has an artifact of another branch")
		}
	})
	t.Run("commit not found", func(t *testing.T) {
		r := newSourceTest(t)
		r.commit(map[string]string{"a": "a"})
		r.obj.Spec.Git.Ref = &appsv1.GitRef{Commit: strings.Repeat("1", 40)}
		r.failed(string(git.CommitNotFound))
	})
	t.Run("commit of another hash", func(t *testing.T) {
		r := newSourceTest(t)
		r.commit(map[string]string{"a": "a"})
		r.obj.Spec.Git.Ref = &appsv1.GitRef{Commit: strings.Repeat("1", 64)}
		r.stalled(string(git.Unsupported))
	})
	t.Run("repository not found", func(t *testing.T) {
		r := newSourceTest(t)
		r.obj.Spec.Git.URL = r.server.URL() + "/nothing.git"
		r.failed(string(git.RepositoryNotFound))
	})
	t.Run("empty repository", func(t *testing.T) {
		r := newSourceTest(t)
		r.failed(string(git.RepositoryEmpty))
	})
	t.Run("link-local address", func(t *testing.T) {
		r := newSourceTest(t)
		r.obj.Spec.Git.URL = "http://169.254.169.254/x.git"
		r.stalled(string(git.URLInvalid))
	})
	t.Run("too large", func(t *testing.T) {
		r := newSourceTest(t)
		r.limits = artifact.Limits{FileBytes: 100}
		r.start()
		r.commit(map[string]string{"big": strings.Repeat("x", 101)})
		r.stalled(string(artifact.TooLarge))
		if left := r.storedFiles(); len(left) > 0 {
			t.Errorf("stored files: %v", left)
		}
	})
	t.Run("storage not writable", func(t *testing.T) {
		r := newSourceTest(t)
		r.commit(map[string]string{"a": "a"})
		if err := os.WriteFile(filepath.Join(r.dir, Space), []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.failed(appsv1.StorageOperationFailedReason)
	})
}

func TestUnreachableServerKeepsArtifact(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	r.done()
	before := r.obj.Status.Artifact.DeepCopy()
	r.obj.Spec.Git.URL = "http://user:hunter2@127.0.0.1:1/fleet.git"
	message := r.failed(string(git.OperationFailed))
	if !strings.Contains(message, "127.0.0.1:1/fleet.git") || strings.Contains(message, "hunter2") {
		t.Errorf("got %s", message)
	}
	if !reflect.DeepEqual(before, r.obj.Status.Artifact) {
		t.Errorf("was %+v, is %+v", before, r.obj.Status.Artifact)
	}
	if got := r.content("a"); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestTimeoutIsReported(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	r.obj.Spec.Timeout = &metav1.Duration{Duration: time.Nanosecond}
	if message := r.failed(string(git.OperationFailed)); !strings.Contains(message, "timeout of 1ns") {
		t.Errorf("the error does not contain the timeout: %s", message)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.obj.Spec.Timeout = nil
	if out, ok := r.reconcileWith(ctx).(reconcile.Retry); !ok {
		t.Errorf("got %+v", out)
	}
}

func TestFullStorageIsReportedAndRecovers(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": strings.Repeat("1", 10)})
	r.capacity = 10
	r.start()
	if message := r.failed(appsv1.StorageFullReason); !strings.Contains(message, "--source-storage-bytes") {
		t.Errorf("the error does not name the flag: %s", message)
	}
	if left := r.storedFiles(); len(left) > 0 {
		t.Errorf("stored files: %v", left)
	}
	r.capacity = 0
	r.start()
	r.done()
}

func TestStorageFailureRecovers(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "1"})
	r.done()
	r.commit(map[string]string{"a": "2"})
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(r.dir, away); err != nil {
		t.Fatal(err)
	}
	r.failed(appsv1.StorageOperationFailedReason)
	if got := r.obj.Status.Artifact; got == nil {
		t.Error("the artifact is withdrawn")
	}
	if err := os.Rename(away, r.dir); err != nil {
		t.Fatal(err)
	}
	r.done()
	if got := r.content("a"); got != "2" {
		t.Errorf("got %q", got)
	}
}
