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
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// goldenSpec is the golden spec of the API, which has every field set.
func goldenSpec(t *testing.T) *appsv1.KsctlRemoveSpec {
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

// The approval in the spec of a KsctlRemove begins with the fingerprint of that spec: with another
// one, each approval in a repository is void.
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
	golden.Equal(t, "fingerprints.txt", out.Bytes())
}

// goldenFound has an object for each reason. Its messages are not those of the program, which may
// be worded otherwise.
func goldenFound() *found {
	f := &found{dependents: []string{"KsctlInstall team/shop"}}
	for i, id := range []string{"ns_a_apps_Deployment", "ns_b__ConfigMap", "ns_c__Secret"} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetUID(types.UID(fmt.Sprintf("u-%d", i)))
		f.take(id, "v1", "app", int32(2-i), u)
	}
	f.leave("ns_e__PersistentVolumeClaim", kept, "a rule keeps it")
	f.leave("_ns__Namespace", namespaced, "somebody made it")
	f.leave("ns_d__ConfigMap", notMatched, "another release has it")
	f.spared = []appsv1.RemovalObject{{ID: "ns_b__ConfigMap", Reason: kept, Message: "others use it"}}
	f.blockers = []appsv1.RemovalObject{{ID: "ns_c__Secret", Reason: protected, Message: "an annotation"},
		{ID: "ns_b__ConfigMap", Reason: finalizers, Message: "a finalizer"},
		{ID: "ns_a_apps_Deployment", Reason: waits, Message: "a pod"}}
	return f
}

// The status has what was found, then how far its removal came.
func TestGoldenStatus(t *testing.T) {
	rm := &appsv1.KsctlRemove{Spec: *goldenSpec(t)}
	rm.Generation = 7
	asked, err := fingerprint(&rm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &Steps{Clock: testclock.NewFakePassiveClock(time.Date(2026, 5, 1, 12, 0, 0, 999, time.UTC))}
	f := goldenFound()
	key := engine.OwnerKey{Installation: "prod", Cluster: "team.eu", Kind: Kind, Namespace: "team", Name: "remove"}
	o := &owner{key: key, uid: "u", inv: engine.NewInventory(nil, nil), chunks: &engine.ChunkStore{},
		req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm, Event: func(string, string, string) {}}}
	o.replace(f.set)
	s.show(rm, f, asked)
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
	o.told([]engine.Change{{Verb: engine.Drop, Ref: left, Note: "another has it"}})
	o.inv.Remove("ns_b__ConfigMap")
	o.inv.Remove("ns_c__Secret")
	o.count(&engine.Report{Plan: engine.Plan{Waits: []engine.Action{{Entry: f.set[0], Message: "a finalizer"}}}})
	flush("status-begun.json")

	least := &appsv1.KsctlRemove{}
	s.show(least, &found{}, asked)
	golden.JSON(t, "status-least.json", &least.Status)
}

// What is stored is of the golden spec, and its digest approves it.
func TestGoldenStatusIsRead(t *testing.T) {
	rm := &appsv1.KsctlRemove{Spec: *goldenSpec(t)}
	asked, err := fingerprint(&rm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(golden.Read(t, "status-begun.json"), &rm.Status); err != nil {
		t.Fatal(err)
	}
	rm.Spec.ApprovedDigest = rm.Status.Removal.Digest
	o := &owner{inv: engine.NewInventory(rm.Status.Inventory, nil),
		req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm}}
	if !frozen(rm, asked) || !approved(rm) || !o.begun() {
		t.Errorf("frozen %t, approved %t, begun %t", frozen(rm, asked), approved(rm), o.begun())
	}
	// What was left is counted beside what is gone.
	before := *rm.Status.Removed
	if o.count(nil); *rm.Status.Removed != before {
		t.Errorf("%d objects are removed, not %d", *rm.Status.Removed, before)
	}
}
