package install

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// goldenInstall returns the golden KsctlInstall of the API, which has every field set.
func goldenInstall(t *testing.T) *appsv1.KsctlInstall {
	t.Helper()
	data, err := os.ReadFile("../../api/apps/v1/testdata/golden/ksctlinstall.json")
	if err != nil {
		t.Fatal(err)
	}
	in := &appsv1.KsctlInstall{}
	if err := yaml.UnmarshalStrict(data, in); err != nil {
		t.Fatal(err)
	}
	golden.Complete(t, &in.Spec)
	return in
}

func goldenRead(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(golden.Read(t, name), into); err != nil {
		t.Fatal(err)
	}
}

// A member install that was created by an earlier version is recognized and up to date.
func TestGoldenMemberInstall(t *testing.T) {
	least := &appsv1.KsctlInstall{}
	least.Namespace, least.Name, least.UID = "team", "web", "u"
	whole := goldenInstall(t)
	whole.Labels["app.kubernetes.io/managed-by"] = "Helm"
	for name, in := range map[string]*appsv1.KsctlInstall{"member-least.json": least, "member.json": whole} {
		want := desiredMember(in, "prod", "sha256:x")
		golden.JSON(t, name, want)
		have := &appsv1.KsctlInstall{}
		goldenRead(t, name, have)
		found := isMemberOf(have, in) && fleetName(have) == in.Name && memberCluster(in, have) == "prod"
		if !found || !memberUpToDate(have, want) {
			t.Errorf("%s is not current", name)
		}
	}
	whole.Status.Clusters = nil
	if got := memberCluster(whole, desiredMember(whole, "eu.prod", "sha256:x")); got != "eu.prod" {
		t.Errorf("the install is of cluster %q", got)
	}
}

func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	a, b := strings.Repeat("a", 150), strings.Repeat("b", 150)
	for _, c := range []struct{ name, cluster string }{
		{"web", "prod"}, {"web", "prod.eu"}, {a, b[:102]}, {a, b[:103]}, {a, b},
		{a, b[:78] + "." + b}, {a, b[:77] + ".-" + b},
	} {
		fmt.Fprintf(&out, "install of %s for %s: %s\n", c.name, c.cluster, memberName(c.name, c.cluster))
	}
	for _, name := range []string{"web", a[:63], a[:64], a[:45] + "." + b, a[:44] + "--" + b} {
		fmt.Fprintf(&out, "fleet %s: %s\n", name, fleetLabelValue(name))
	}
	for _, text := range []string{"", "web-prod"} {
		fmt.Fprintf(&out, "hash of %q: %s\n", text, shortHash(text))
	}
	for _, names := range [][]string{nil, {"prod u-1"}, {"prod u-1", "stage u-2"}, {"stage u-2", "prod u-1"}} {
		fmt.Fprintf(&out, "digest of %q: %s\n", names, shortDigest(names))
	}
	// The digest that approves a removal from clusters.
	members := []memberInstall{memberAt("prod", "dropped"), memberAt("stage", "dropped"), memberAt("test", "ready")}
	for i := range members {
		members[i].install.UID = types.UID(fmt.Sprintf("u-%d", i+1))
	}
	r := planRollout(members, "r2", goldenOptions())
	fmt.Fprintf(&out, "two of three clusters dropped: %s\n", r.approvalDigest)
	golden.Equal(t, "names.txt", out.Bytes())
}

func goldenOptions() rolloutOptions {
	return rolloutOptions{maxConcurrent: 2, now: time.Unix(1000, 0)}
}

func TestGoldenRelease(t *testing.T) {
	least := artifactStatus(artifact.Artifact{})
	whole := artifactStatus(artifact.Artifact{URL: "http://source/r1.tar.gz", Revision: "main@sha1:5f0c", Digest: "sha256:r1"})
	hidden := artifactStatus(artifact.Artifact{URL: "http://source/r1.tar.gz?token=x", Revision: "main@sha1:5f0c",
		Digest: "sha256:r1"})
	golden.JSON(t, "artifact-least.json", least)
	golden.JSON(t, "artifact.json", whole)
	golden.JSON(t, "artifact-hidden.json", hidden)
	golden.Complete(t, whole)

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

func TestGoldenRolloutOrder(t *testing.T) {
	all := []turn{{}, {number: 7}, {number: 7, ahead: true}, {number: maxTurn, ahead: true}}
	var out bytes.Buffer
	for _, x := range all {
		fmt.Fprintln(&out, x)
	}
	golden.Equal(t, "turns.txt", out.Bytes())
	for i, line := range strings.Split(strings.TrimSpace(string(golden.Read(t, "turns.txt"))), "\n") {
		in := &appsv1.KsctlInstall{}
		in.Annotations = map[string]string{appsv1.TurnAnnotation: line}
		if got := lastTurn(in); got != all[i] {
			t.Errorf("%q is parsed as %+v", line, got)
		}
	}
}

// The entries of status.clusters in every state, the first with every field.
func TestGoldenRollout(t *testing.T) {
	var members []memberInstall
	for i, state := range []string{"busy", "ready", "behind", "failed", "away", "unready", "late", "going", "ready*", "",
		"failed*", "busy*", "dropped"} {
		s := memberAt(fmt.Sprintf("c%02d", i), state)
		if s.install != nil {
			s.install.Annotations = map[string]string{appsv1.TurnAnnotation: turn{number: 3}.String()}
		}
		if state == "busy*" {
			since := metav1.NewTime(time.Unix(990, 0))
			s.previous = &appsv1.InstalledCluster{State: appsv1.ClusterUpdating, Since: &since}
		}
		members = append(members, s)
	}
	options := goldenOptions()
	options.maxConcurrent = 6
	r := planRollout(members, "r2", options)
	golden.Complete(t, r.clusters)
	golden.JSON(t, "clusters.json", &r.clusters)

	changes := map[string]string{}
	for cluster, turn := range r.updates {
		changes[cluster] = turn.String()
	}
	golden.JSON(t, "turns-given.json", &changes)
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
	gone := resolveRemovalRequests(stored, removes[1:], entries, map[string]time.Time{"remove-app": now}, time.Minute, now)
	if len(gone) != 3 || gone[0].record.Name != "remove-app" || !gone[0].reinstallAt.Equal(now.Add(time.Minute)) {
		t.Errorf("without the first KsctlRemove: %+v", gone)
	}
}
