package live

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
)

// A definition that is made and deleted again and again is watched soon each time,
// also when the API server is not ready for it at the first try.
func TestWakeBeginsTheWaitsAnew(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	defer server.Close()
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ix, err := New(&rest.Config{Host: server.URL}, Options{Owner: "inst", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	ix.Use(testOwner, []*meta.RESTMapping{{GroupVersionKind: configMapKind, Resource: configMapKind.GroupVersion().WithResource("configmaps"), Scope: meta.RESTScopeNamespace}})
	_, w := ix.onlyWatch()
	var running sync.WaitGroup
	t.Cleanup(running.Wait)

	asks := func(what string, happens func()) {
		t.Helper()
		before := asked.Load()
		happens()
		for deadline := time.Now().Add(time.Minute); asked.Load() == before || !c.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: it did not try again", what)
			}
		}
	}
	asks("at first", func() { running.Go(func() { w.run(t.Context()) }) })
	for range 12 {
		asks("after the longest wait", func() { c.Step(2 * ix.opts.MaxBackoff) })
	}
	asks("woken", func() { ix.Wake(configMapKind.GroupKind()) })
	asks("after the shortest wait", func() { c.Step(2 * ix.opts.MinBackoff) })
}
