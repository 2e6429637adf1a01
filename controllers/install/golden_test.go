package install

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

func goldenRead(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(golden.Read(t, name), into); err != nil {
		t.Fatal(err)
	}
}

func TestGoldenRelease(t *testing.T) {
	least := artifactStatus(artifact.Artifact{})
	whole := artifactStatus(artifact.Artifact{URL: "http://source/r1.tar.gz", Revision: "main@sha1:5f0c",
		Digest: "sha256:r1"})
	hidden := artifactStatus(artifact.Artifact{URL: "http://source/r1.tar.gz?token=x", Revision: "main@sha1:5f0c",
		Digest: "sha256:r1"})
	golden.JSON(t, "artifact-least.json", least)
	golden.JSON(t, "artifact.json", whole)
	golden.JSON(t, "artifact-hidden.json", hidden)
	rolledOut := *whole
	rolledOut.Since, rolledOut.WasReady = &metav1.Time{Time: time.Unix(1767225600, 0).UTC()}, true
	golden.JSON(t, "artifact-rollout.json", &rolledOut)
	golden.Complete(t, &rolledOut)

	// A member install that awaits the rollout keeps the artifact in its status.
	in := memberInstallWith("r1", &appsv1.TakenArtifact{})
	goldenRead(t, "artifact.json", in.Status.Artifact)
	o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: in}}
	from, err := o.selectArtifact(t.Context(), artifactAt("r2"))
	want := artifact.Artifact{URL: "http://source/r1.tar.gz", Revision: "main@sha1:5f0c", Digest: "sha256:r1"}
	if err != nil || from != want {
		t.Errorf("selected artifact: %+v, %v", from, err)
	}
}

// A recorded removal continues as long as its KsctlRemove is the same object.
func TestGoldenRemovals(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	entries := []appsv1.InventoryEntry{{ID: "ns_a__ConfigMap", UID: "u-1", Component: "app"},
		{ID: "ns_b__ConfigMap", UID: "u-2", Component: "db"}}
	remove := func(name string, components ...string) appsv1.KsctlRemove {
		rm := appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-3", Generation: 2}}
		rm.Spec.Components = components
		rm.Status.Removal = &appsv1.Removal{Generation: 2, Digest: plan.Digest(matchingEntries(entries, &rm.Spec))}
		return rm
	}
	notRehearsed := remove("remove-unsaid", "db")
	notRehearsed.Status.Removal = nil
	removes := []appsv1.KsctlRemove{remove("remove-app", "app"), remove("remove-whole"), notRehearsed}
	in := &appsv1.KsctlInstall{}
	o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: in}}
	o.removalRequests = resolveRemovalRequests(nil, removes, entries, nil, time.Minute, now)
	kept := engine.Change{Verb: plan.VerbRelease, Ref: stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"},
		Message: "kept: spec.keep has ConfigMap"}
	o.recordKept(map[string]string{"ns_a__ConfigMap": "app"}, &engine.Report{Changes: []engine.Change{kept}})
	golden.Complete(t, in.Status.Removals)
	golden.JSON(t, "removals.json", &in.Status.Removals)

	var stored []appsv1.InstallRemoval
	goldenRead(t, "removals.json", &stored)
	fewer := resolveRemovalRequests(stored, removes, entries[1:], nil, time.Minute, now)
	if !fewer[0].active() || fewer[1].active() || !fewer[2].active() || fewer.hasNew(stored) {
		t.Errorf("with fewer objects: %+v", fewer)
	}
	gone := resolveRemovalRequests(stored, removes[1:], entries, map[string]time.Time{"remove-app": now}, time.Minute,
		now)
	if len(gone) != 3 || gone[0].record.Name != "remove-app" || !gone[0].reinstallAt.Equal(now.Add(time.Minute)) {
		t.Errorf("without the first KsctlRemove: %+v", gone)
	}
}
