package engine

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// BenchmarkPrepare prepares 1,000 rendered objects for planning.
func BenchmarkPrepare(b *testing.B) {
	rc := stacks.RenderedComponent{Name: "c"}
	for i := range 1000 {
		rc.Objects = append(rc.Objects, stacks.Object{Ref: ref(fmt.Sprintf("o%04d", i)), Version: "v1", Hash: base})
	}
	_, d := newAPIServer()
	b.ReportAllocs()
	for b.Loop() {
		Prepare(b.Context(), []stacks.RenderedComponent{rc}, plan.DefaultPolicies, d)
	}
}

// BenchmarkApplyPatch makes the apply patch of a Deployment.
func BenchmarkApplyPatch(b *testing.B) {
	it := plan.Item{Object: stacks.Object{Ref: stacks.Ref{Group: "apps", Kind: "Deployment", Namespace: "ns",
		Name: "web"}, Version: "v1"}}
	it.ID = it.Ref.ID()
	manifest := json.RawMessage(
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"ns","labels":{"app":"web"}},
		"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceAccountName":"web",
		"containers":[{"name":"main","image":"registry.example.com/web:1.0.0","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"10m","memory":"16Mi"}}}]}}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := applyPatch(manifest, &it, me, precondition{absent: true}, false, nil); err != nil {
			b.Fatal(err)
		}
	}
}
