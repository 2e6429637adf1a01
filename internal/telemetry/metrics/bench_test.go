package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// BenchmarkScrape measures one scrape with 10,000 installs.
func BenchmarkScrape(b *testing.B) {
	r, reg := NewRecorder(), prometheus.NewRegistry()
	reg.MustRegister(r)
	for i := range 10_000 {
		in := install("True", "ReconciliationSucceeded", appsv1.ComponentStatus{Name: "a", Ready: true, Objects: 3})
		in.Name = fmt.Sprint(i)
		r.RecordStatus("KsctlInstall", in)
		r.RecordDuration("KsctlInstall", types.NamespacedName{Namespace: in.Namespace, Name: in.Name}, time.Now())
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecordStatus measures the cost per reconcile.
func BenchmarkRecordStatus(b *testing.B) {
	r := NewRecorder()
	in := install("True", "ReconciliationSucceeded", appsv1.ComponentStatus{Name: "a", Ready: true, Objects: 3})
	b.ReportAllocs()
	for b.Loop() {
		r.RecordStatus("KsctlInstall", in)
	}
}
