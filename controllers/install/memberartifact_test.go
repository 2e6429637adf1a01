package install

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/chart"
)

func at(revision string) artifact.Artifact {
	return artifact.Artifact{URL: "http://source/" + revision + ".tar.gz", Revision: revision, Digest: "sha256:" + revision}
}

func takenAt(revision string) *appsv1.TakenArtifact { return taken(at(revision)) }

// forCluster is an install that was made for a cluster, may take in an artifact, and has one.
func forCluster(may string, has *appsv1.TakenArtifact) *appsv1.KsctlInstall {
	in := siteInstall(install("app", "src", nil), "prod", "sha256:"+may)
	in.Status.Artifact = has
	return in
}

func TestReleased(t *testing.T) {
	hidden := takenAt("r1")
	hidden.URL = ""
	for name, tc := range map[string]struct {
		in *appsv1.KsctlInstall
		// from is the revision of what it goes by, has what its status has then.
		from, has string
		recorded  bool
		awaits    string
	}{
		"one of its own":                    {in: install("app", "src", nil), from: "r2"},
		"the first one":                     {in: forCluster("r2", nil), from: "r2", has: "r2", recorded: true},
		"it is its turn":                    {in: forCluster("r2", takenAt("r1")), from: "r2", has: "r2", recorded: true},
		"it has it":                         {in: forCluster("r2", takenAt("r2")), from: "r2", has: "r2"},
		"it waits":                          {in: forCluster("r1", takenAt("r1")), from: "r1", has: "r1", awaits: "r2"},
		"it waits, and had a turn for none": {in: forCluster("r1b", takenAt("r1")), has: "r1", awaits: "r2"},
		"it waits, from an earlier version": {in: forCluster("r1", nil), awaits: "r2"},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := false
			o := &owner{awaits: "before", req: &reconcile.Request[*appsv1.KsctlInstall]{Object: tc.in, Persist: func(_ context.Context, doing string) error {
				recorded = doing == "taking in revision r2" && tc.in.Status.Artifact.Revision == "r2" && tc.in.Status.LastAttemptedRevision != "r2"
				return nil
			}}}
			from, err := o.released(t.Context(), at("r2"))
			want := artifact.Artifact{}
			if tc.from != "" {
				want = at(tc.from)
			}
			if err != nil || from != want || recorded != tc.recorded || o.awaits != tc.awaits {
				t.Errorf("goes by %+v, recorded %t, awaits %q, %v", from, recorded, o.awaits, err)
			}
			if has := tc.in.Status.Artifact; (has == nil) != (tc.has == "") || has != nil && *has != *takenAt(tc.has) {
				t.Errorf("has %+v, want %s", has, tc.has)
			}
		})
	}
	full := errors.New("full")
	o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: forCluster("r2", takenAt("r1")), Persist: func(context.Context, string) error { return full }}}
	if _, err := o.released(t.Context(), at("r2")); !errors.Is(err, full) {
		t.Errorf("not on record: %v", err)
	}
	for _, url := range []string{"http://source/a?sig=x", "http://me:secret@source/a", "http://source/a#x", ""} {
		if got := taken(artifact.Artifact{URL: url, Revision: "r1", Digest: "sha256:r1"}); *got != *hidden {
			t.Errorf("of %s is kept %+v", url, got)
		}
	}
}

func TestUnserved(t *testing.T) {
	again := time.Unix(1000, 0)
	failed := func(r artifact.Reason) error {
		return fmt.Errorf("wrapped: %w", &artifact.Error{Reason: r, URL: "http://source/r1.tar.gz", Message: "no"})
	}
	said := "waits for its turn to take in revision r2, and nothing is changed or put right until then: revision r1, which it took in last, "
	hidden := takenAt("r1")
	hidden.URL = ""
	for name, tc := range map[string]struct {
		err    error
		has    *appsv1.TakenArtifact
		awaits string
		want   string
		until  time.Time
	}{
		"nothing":                  {nil, takenAt("r1"), "r2", "", time.Time{}},
		"it is gone":               {failed(artifact.NotFound), takenAt("r1"), "r2", said + "is not served any more: http://source/r1.tar.gz: no", time.Time{}},
		"another one is there":     {failed(artifact.DigestMismatch), takenAt("r1"), "r2", said + "is not served any more: http://source/r1.tar.gz: no", time.Time{}},
		"nobody answers":           {failed(artifact.Unreachable), takenAt("r1"), "r2", said + "can't be fetched: http://source/r1.tar.gz: no", again},
		"its address is not kept":  {failed(artifact.RefusedAddress), hidden, "r2", said + "can't be fetched again: its address could hold a secret, and is not kept", time.Time{}},
		"its address is refused":   {failed(artifact.RefusedAddress), takenAt("r1"), "r2", "", time.Time{}},
		"the disk fails":           {failed(artifact.Storage), takenAt("r1"), "r2", "", time.Time{}},
		"it is the newest one":     {failed(artifact.NotFound), takenAt("r1"), "", "", time.Time{}},
		"another error":            {errors.New("no"), takenAt("r1"), "r2", "", time.Time{}},
		"one of a chart":           {&chart.Error{Err: failed(artifact.NotFound)}, takenAt("r1"), "r2", "", time.Time{}},
		"one of many, of requests": {errors.Join(errors.New("no"), failed(artifact.NotFound)), takenAt("r1"), "r2", said + "is not served any more: http://source/r1.tar.gz: no", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &owner{awaits: tc.awaits, req: &reconcile.Request[*appsv1.KsctlInstall]{Object: forCluster("r1", tc.has)}}
			var got string
			var until time.Time
			if out, ok := o.unserved(tc.err, again).(reconcile.Waiting); ok {
				got, until = out.On, out.Until
				if out.Late || out.Reason != WaitsForTurnReason {
					t.Errorf("%+v", out)
				}
			}
			if got != tc.want || until != tc.until {
				t.Errorf("got %q until %s, want %q", got, until, tc.want)
			}
		})
	}
}
