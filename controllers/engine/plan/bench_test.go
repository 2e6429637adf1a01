package plan

import (
	"fmt"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
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
		if p := Reconcile(in); len(p.Actions) != 1 {
			b.Fatalf("%d actions", len(p.Actions))
		}
	}
}
