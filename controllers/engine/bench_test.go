package engine

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// BenchmarkPlan plans 1,000 objects, one of which has changed.
func BenchmarkPlan(b *testing.B) {
	var w fixture
	c := Component{Name: "c"}
	for i := range 1000 {
		name := fmt.Sprintf("o%04d", i)
		c.Items = append(c.Items, item("c", name))
		w.entries = append(w.entries, entry(name, appsv1.EntryApplied))
		w.live = append(w.live, liveObject(name))
	}
	c.Items[500].ContentHash = "another"
	in := w.snapshot(c)
	b.ReportAllocs()
	for b.Loop() {
		if p := PlanReconcile(in); len(p.Actions) != 1 {
			b.Fatalf("%d actions", len(p.Actions))
		}
	}
}

// BenchmarkPrepare prepares 1,000 rendered objects for planning.
func BenchmarkPrepare(b *testing.B) {
	rc := stacks.RenderedComponent{Name: "c"}
	for i := range 1000 {
		rc.Objects = append(rc.Objects, stacks.Object{Ref: ref(fmt.Sprintf("o%04d", i)), Version: "v1", Hash: base})
	}
	_, d := newAPIServer()
	b.ReportAllocs()
	for b.Loop() {
		Prepare(b.Context(), []stacks.RenderedComponent{rc}, DefaultPolicies, d)
	}
}

// BenchmarkApplyPatch makes the apply patch of a Deployment.
func BenchmarkApplyPatch(b *testing.B) {
	it := Item{Object: stacks.Object{Ref: stacks.Ref{Group: "apps", Kind: "Deployment", Namespace: "ns", Name: "web"}, Version: "v1"}}
	it.ID = it.Ref.ID()
	manifest := json.RawMessage(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"ns","labels":{"app":"web"}},
		"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceAccountName":"web",
		"containers":[{"name":"main","image":"registry.example.com/web:1.0.0","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"10m","memory":"16Mi"}}}]}}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := applyPatch(manifest, &it, me, precondition{absent: true}, false, nil); err != nil {
			b.Fatal(err)
		}
	}
}
