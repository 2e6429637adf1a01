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

// A CRD that is created and deleted repeatedly is watched soon each time, also if the API server
// does not serve it at the first attempt.
func TestWakeRetriesAndResetsBackoff(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	defer server.Close()
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ix, err := New(&rest.Config{Host: server.URL}, Options{OwnerID: "inst", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	ix.SetOwnerKinds(testOwner,
		[]*meta.RESTMapping{{GroupVersionKind: configMapKind, Resource: configMapKind.GroupVersion().
			WithResource("configmaps"), Scope: meta.RESTScopeNamespace}})
	_, w := ix.onlyWatcher()
	var running sync.WaitGroup
	t.Cleanup(running.Wait)

	asks := func(what string, happens func()) {
		t.Helper()
		before := asked.Load()
		happens()
		for deadline := time.Now().Add(time.Minute); asked.Load() == before ||
			!c.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no retry within a minute", what)
			}
		}
	}
	asks("first request", func() { running.Go(func() { w.run(t.Context()) }) })
	for range 12 {
		asks("after the maximum backoff", func() { c.Step(2 * ix.opts.MaxBackoff) })
	}
	asks("after Wake", func() { ix.Wake(configMapKind.GroupKind()) })
	asks("after the minimum backoff", func() { c.Step(2 * ix.opts.MinBackoff) })
}
