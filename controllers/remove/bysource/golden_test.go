package bysource

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// goldenSpec returns the golden spec of the API, with all fields set that existed when the
// golden files were written.
func goldenSpec(t *testing.T) *appsv1.KsctlRemoveSpec {
	t.Helper()
	spec := specWithCharts(t)
	for i := range spec.Choices {
		c := &spec.Choices[i]
		c.ReleaseName, c.CRDs, c.Hooks, c.SkipSchemaValidation = "", "", "", nil
	}
	return spec
}

// specWithCharts returns goldenSpec with the settings of charts.
func specWithCharts(t *testing.T) *appsv1.KsctlRemoveSpec {
	t.Helper()
	spec := wholeSpec(t)
	for i := range spec.Choices {
		c := &spec.Choices[i]
		c.CommonMetadata, c.NamePrefix, c.NameSuffix, c.KustomizeComponents = nil, "", "", nil
	}
	return spec
}

// wholeSpec returns the golden spec of the API, with all fields set.
func wholeSpec(t *testing.T) *appsv1.KsctlRemoveSpec {
	t.Helper()
	data, err := os.ReadFile("../../../api/apps/v1/testdata/golden/ksctlremove.json")
	if err != nil {
		t.Fatal(err)
	}
	var rm appsv1.KsctlRemove
	if err := yaml.UnmarshalStrict(data, &rm); err != nil {
		t.Fatal(err)
	}
	golden.Complete(t, &rm.Spec)
	return &rm.Spec
}

// TestGoldenFingerprint pins the fingerprint of a spec, which is a prefix of spec.approvedDigest:
// with other fingerprints, every approval in a repository would be void.
func TestGoldenFingerprint(t *testing.T) {
	var out bytes.Buffer
	line := func(name string, spec *appsv1.KsctlRemoveSpec) {
		t.Helper()
		got, err := fingerprint(spec)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s: %s\n", name, got)
	}
	whole := goldenSpec(t)
	least := &appsv1.KsctlRemoveSpec{SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Stack: "app"}
	line("nothing", &appsv1.KsctlRemoveSpec{})
	line("least", least)
	line("every field", whole)
	unsaid, nothing := whole.DeepCopy(), whole.DeepCopy()
	unsaid.Keep, nothing.Keep = nil, []appsv1.KeepRule{}
	line("every field but keep", unsaid)
	line("every field, empty keep", nothing)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[appsv1.KsctlRemoveSpec]()) {
		if f.Anonymous {
			continue
		}
		spec := least.DeepCopy()
		reflect.ValueOf(spec).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(whole).Elem().FieldByIndex(f.Index))
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		line("least with "+name, spec)
	}
	line("every field, with settings of charts", specWithCharts(t))
	line("every field, with metadata and names", wholeSpec(t))
	golden.Equal(t, "fingerprints.txt", out.Bytes())
}

// goldenFindings has an object for each reason. Its messages are placeholders, because the real
// ones may be reworded.
func goldenFindings() *findings {
	f := &findings{dependents: []string{"KsctlInstall team/shop"}}
	for i, id := range []string{"ns_a_apps_Deployment", "ns_b__ConfigMap", "ns_c__Secret"} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetUID(types.UID(fmt.Sprintf("u-%d", i)))
		f.add(id, "v1", "app", int32(2-i), u)
	}
	f.leave("ns_e__PersistentVolumeClaim", reasonKept, "a rule keeps it")
	f.leave("_ns__Namespace", reasonNamespace, "somebody made it")
	f.leave("ns_d__ConfigMap", reasonNotMatched, "another release has it")
	f.spared = []appsv1.RemovalObject{{ID: "ns_b__ConfigMap", Reason: reasonKept, Message: "others use it"}}
	f.blockers = []appsv1.RemovalObject{{ID: "ns_c__Secret", Reason: reasonProtected, Message: "an annotation"},
		{ID: "ns_b__ConfigMap", Reason: reasonFinalizers, Message: "a finalizer"},
		{ID: "ns_a_apps_Deployment", Reason: reasonWaiting, Message: "a pod"}}
	return f
}

// TestGoldenStatus pins the status of a rehearsal, and of a removal in progress.
func TestGoldenStatus(t *testing.T) {
	rm := &appsv1.KsctlRemove{Spec: *goldenSpec(t)}
	rm.Generation = 7
	specHash, err := fingerprint(&rm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &Steps{Clock: testclock.NewFakePassiveClock(time.Date(2026, 5, 1, 12, 0, 0, 999, time.UTC))}
	f := goldenFindings()
	key := plan.OwnerKey{Installation: "prod", Cluster: "team.eu", Kind: appsv1.KsctlRemoveKind, Namespace: "team",
		Name: "remove"}
	o := &owner{key: key, uid: "u", inv: plan.NewInventory(nil, nil), chunks: &engine.ChunkStore{},
		req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm, Event: func(string, string, string) {}}}
	o.setEntries(f.set)
	s.reportRehearsal(rm, f, specHash)
	flush := func(name string) {
		t.Helper()
		if err := o.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		golden.Complete(t, rm.Status.Removal)
		golden.Complete(t, rm.Status.Remaining)
		golden.JSON(t, name, &rm.Status)
	}
	flush("status.json")

	left := stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "b"}
	o.recordReleased([]engine.Change{{Verb: plan.VerbDrop, Ref: left, Message: "another has it"}})
	o.inv.Remove("ns_b__ConfigMap")
	o.inv.Remove("ns_c__Secret")
	o.updateProgress(&engine.Report{Plan: plan.Plan{Waits: []plan.Action{{Entry: f.set[0], Message: "a finalizer"}}}})
	flush("status-begun.json")

	least := &appsv1.KsctlRemove{}
	s.reportRehearsal(least, &findings{}, specHash)
	golden.JSON(t, "status-least.json", &least.Status)
}

// A stored status is recognized as the rehearsal of its spec, and its digest as the approval.
func TestStoredStatusIsRecognized(t *testing.T) {
	rm := &appsv1.KsctlRemove{Spec: *goldenSpec(t)}
	specHash, err := fingerprint(&rm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(golden.Read(t, "status-begun.json"), &rm.Status); err != nil {
		t.Fatal(err)
	}
	rm.Spec.ApprovedDigest = rm.Status.Removal.Digest
	o := &owner{inv: plan.NewInventory(rm.Status.Inventory, nil),
		req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm}}
	if !isRehearsed(rm, specHash) || !isApproved(rm) || !o.started() {
		t.Errorf("frozen %t, approved %t, begun %t", isRehearsed(rm, specHash), isApproved(rm), o.started())
	}
	// Released objects do not count as removed.
	before := *rm.Status.Removed
	if o.updateProgress(nil); *rm.Status.Removed != before {
		t.Errorf("got %d removed objects, want %d", *rm.Status.Removed, before)
	}
}
