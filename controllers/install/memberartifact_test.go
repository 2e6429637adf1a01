package install

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/chart"
)

func artifactAt(revision string) artifact.Artifact {
	return artifact.Artifact{URL: "http://source/" + revision + ".tar.gz", Revision: revision,
		Digest: "sha256:" + revision}
}

func artifactStatusAt(revision string) *appsv1.TakenArtifact {
	return artifactStatus(artifactAt(revision))
}

// memberInstallWith returns a member install. released is the revision that the rollout has
// released to it, and recorded is the artifact in its status.
func memberInstallWith(released string, recorded *appsv1.TakenArtifact) *appsv1.KsctlInstall {
	in := install("app-prod", "src", nil)
	in.Status.Conditions = nil
	in.Annotations = map[string]string{appsv1.ReleaseAnnotation: "sha256:" + released}
	in.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.GroupVersion.String(),
		Kind: appsv1.KsctlInstallKind, Name: "app", Controller: ptr.To(true)}}
	in.Status.Artifact = recorded
	return in
}

func TestSelectArtifactKeepsReleasedArtifact(t *testing.T) {
	hidden := artifactStatusAt("r1")
	hidden.URL = ""
	for name, tc := range map[string]struct {
		in *appsv1.KsctlInstall
		// from is the revision of the selected artifact, and has the revision in the status
		// afterwards.
		from, has string
		recorded  bool
		awaits    string
	}{
		"not a member":   {in: install("app", "src", nil), from: "r2"},
		"first artifact": {in: memberInstallWith("r2", nil), from: "r2", has: "r2", recorded: true},
		"new artifact is released": {in: memberInstallWith("r2", artifactStatusAt("r1")), from: "r2", has: "r2",
			recorded: true},
		"released artifact is recorded": {in: memberInstallWith("r2", artifactStatusAt("r2")), from: "r2", has: "r2"},
		"awaiting the rollout": {in: memberInstallWith("r1", artifactStatusAt("r1")), from: "r1", has: "r1",
			awaits: "r2"},
		"awaiting the rollout, last released artifact not recorded": {
			in: memberInstallWith("r1b", artifactStatusAt("r1")), has: "r1", awaits: "r2"},
		"awaiting the rollout, no artifact recorded": {in: memberInstallWith("r1", nil), awaits: "r2"},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := false
			o := &owner{awaitedRevision: "before",
				req: &reconcile.Request[*appsv1.KsctlInstall]{Object: tc.in, Persist: func(_ context.Context,
					doing string) error {
					recorded = doing == "applying revision r2" && tc.in.Status.Artifact.Revision == "r2" &&
						tc.in.Status.LastAttemptedRevision != "r2"
					return nil
				}}}
			from, err := o.selectArtifact(t.Context(), artifactAt("r2"))
			want := artifact.Artifact{}
			if tc.from != "" {
				want = artifactAt(tc.from)
			}
			if err != nil || from != want || recorded != tc.recorded || o.awaitedRevision != tc.awaits {
				t.Errorf("selected %+v, recorded %t, awaits %q, %v", from, recorded, o.awaitedRevision, err)
			}
			if has := tc.in.Status.Artifact; (has == nil) != (tc.has == "") || has != nil &&
				*has != *artifactStatusAt(tc.has) {
				t.Errorf("recorded artifact %+v, want %s", has, tc.has)
			}
		})
	}
	full := errors.New("full")
	o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: memberInstallWith("r2", artifactStatusAt("r1")),
		Persist: func(context.Context, string) error { return full }}}
	if _, err := o.selectArtifact(t.Context(), artifactAt("r2")); !errors.Is(err, full) {
		t.Errorf("error of Persist is not returned: %v", err)
	}
	for _, url := range []string{"http://source/a?sig=x", "http://me:secret@source/a", "http://source/a#x", ""} {
		if got := artifactStatus(artifact.Artifact{URL: url, Revision: "r1", Digest: "sha256:r1"}); *got != *hidden {
			t.Errorf("status of URL %s: %+v", url, got)
		}
	}
}

func TestArtifactUnavailableWhileAwaitingRollout(t *testing.T) {
	retryAt := time.Unix(1000, 0)
	failed := func(r artifact.Reason) error {
		return fmt.Errorf("wrapped: %w", &artifact.Error{Reason: r, URL: "http://source/r1.tar.gz", Message: "no"})
	}
	prefix := "awaiting the rollout of revision r2; until then nothing is changed and drift is not corrected: the " +
		"previously released revision r1 "
	hidden := artifactStatusAt("r1")
	hidden.URL = ""
	for name, tc := range map[string]struct {
		err    error
		has    *appsv1.TakenArtifact
		awaits string
		want   string
		until  time.Time
	}{
		"no error": {nil, artifactStatusAt("r1"), "r2", "", time.Time{}},
		"not found": {failed(artifact.NotFound), artifactStatusAt("r1"), "r2",
			prefix + "is no longer served: http://source/r1.tar.gz: no", time.Time{}},
		"another digest": {failed(artifact.DigestMismatch), artifactStatusAt("r1"), "r2",
			prefix + "is no longer served: http://source/r1.tar.gz: no", time.Time{}},
		"unreachable server": {failed(artifact.Unreachable), artifactStatusAt("r1"), "r2",
			prefix + "cannot be fetched: http://source/r1.tar.gz: no", retryAt},
		"URL is not stored": {failed(artifact.RefusedAddress), hidden, "r2",
			prefix + "cannot be fetched again: the URL may contain a secret and is not stored", time.Time{}},
		"URL is not allowed":       {failed(artifact.RefusedAddress), artifactStatusAt("r1"), "r2", "", time.Time{}},
		"disk error":               {failed(artifact.Storage), artifactStatusAt("r1"), "r2", "", time.Time{}},
		"not awaiting the rollout": {failed(artifact.NotFound), artifactStatusAt("r1"), "", "", time.Time{}},
		"other error":              {errors.New("no"), artifactStatusAt("r1"), "r2", "", time.Time{}},
		"error of a chart": {&chart.Error{Err: failed(artifact.NotFound)}, artifactStatusAt("r1"), "r2", "",
			time.Time{}},
		"among errors of requests": {errors.Join(errors.New("no"), failed(artifact.NotFound)), artifactStatusAt("r1"),
			"r2", prefix + "is no longer served: http://source/r1.tar.gz: no", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &owner{awaitedRevision: tc.awaits,
				req: &reconcile.Request[*appsv1.KsctlInstall]{Object: memberInstallWith("r1", tc.has)}}
			var got string
			var until time.Time
			if out, ok := o.artifactUnavailable(tc.err, retryAt).(reconcile.Waiting); ok {
				got, until = out.On, out.RequeueAt
				if out.TimedOut || out.Reason != appsv1.AwaitingRolloutReason {
					t.Errorf("%+v", out)
				}
			}
			if got != tc.want || until != tc.until {
				t.Errorf("got %q until %s, want %q", got, until, tc.want)
			}
		})
	}
}
