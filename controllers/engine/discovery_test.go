package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// apiServer is a fake API server for discovery.
type apiServer struct {
	discovery.DiscoveryInterfaceWithContext

	mu       sync.Mutex
	requests int
	lists    []*metav1.APIResourceList
	// failed are groups that do not answer; down fails every discovery.
	failed           map[schema.GroupVersion]error
	down, versionErr error
	// allowed, if not nil, allows one response for each value in it.
	allowed chan struct{}
}

func (s *apiServer) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup,
	[]*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.allowed != nil {
		select {
		case <-s.allowed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if s.down != nil {
		return nil, nil, s.down
	}
	byName := map[string]*metav1.APIGroup{}
	var groups []*metav1.APIGroup
	add := func(gv schema.GroupVersion) {
		g := byName[gv.Group]
		if g == nil {
			g = &metav1.APIGroup{Name: gv.Group,
				PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}}
			byName[gv.Group] = g
			groups = append(groups, g)
		}
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	var err error
	if len(s.failed) > 0 {
		err = &discovery.ErrGroupDiscoveryFailed{Groups: s.failed}
	}
	for gv := range s.failed {
		add(gv)
	}
	for _, l := range s.lists {
		gv, perr := schema.ParseGroupVersion(l.GroupVersion)
		if perr != nil {
			panic(perr)
		}
		add(gv)
	}
	return groups, s.lists, err
}

func (s *apiServer) ServerVersionWithContext(context.Context) (*version.Info, error) {
	return &version.Info{GitVersion: "v1.37.2"}, s.versionErr
}

func resourceList(groupVersion string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: resources}
}

func resource(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
}

var widgets = resourceList("g.io/v1", resource("widgets", "Widget", true, "get", "list"))

func newAPIServer(more ...*metav1.APIResourceList) (*apiServer, *ServerDiscovery) {
	s := &apiServer{lists: append([]*metav1.APIResourceList{
		resourceList("v1", resource("configmaps", "ConfigMap", true, "get", "list"),
			resource("namespaces", "Namespace", false, "get", "list"),
			resource("pods", "Pod", true, "get", "list"), resource("pods/log", "Pod", true, "get"),
			resource("bindings", "Binding", true, "create")),
		resourceList("apps/v1", resource("deployments", "Deployment", true, "get", "list"),
			resource("deployments/scale", "Scale", true, "get")),
	}, more...)}
	return s, NewServerDiscovery(s)
}

func TestResolve(t *testing.T) {
	s, d := newAPIServer(widgets, resourceList("g.io/v2", resource("widgets", "Widget", true, "get", "list")))
	for gvk, want := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "ConfigMap"}:                   "/v1, Resource=configmaps",
		{Group: "apps", Version: "v1", Kind: "Deployment"}:   "apps/v1, Resource=deployments",
		{Group: "g.io", Version: "v2", Kind: "Widget"}:       "g.io/v2, Resource=widgets",
		{Group: "g.io", Version: "v1", Kind: "Widget"}:       "g.io/v1, Resource=widgets",
		{Group: "g.io", Version: "v3", Kind: "Widget"}:       "",
		{Group: "g.io", Version: "v1", Kind: "widget"}:       "",
		{Group: "g.io", Version: "v1", Kind: "WidgetList"}:   "",
		{Group: "h.io", Version: "v1", Kind: "Widget"}:       "",
		{Group: "apps", Version: "v1", Kind: "Scale"}:        "built in",
		{Group: "apps", Version: "v1", Kind: "Deploymint"}:   "built in",
		{Group: "apps", Version: "v1beta1", Kind: "Widget"}:  "built in",
		{Group: "", Version: "v1", Kind: "Configmap"}:        "built in",
		{Group: "", Version: "v2", Kind: "ConfigMap"}:        "built in",
		{Group: "batch", Version: "v1", Kind: "Job"}:         "built in",
		{Group: "metrics.k8s.io", Version: "v1", Kind: "No"}: "",
	} {
		m, err := d.Resolve(t.Context(), gvk.Group, gvk.Version, gvk.Kind)
		var missing *plan.NotServedError
		switch {
		case want == "" || want == "built in":
			if !errors.As(err, &missing) || missing.GVK != gvk || missing.BuiltIn != (want == "built in") {
				t.Errorf("%s: %v (%+v)", gvk, err, missing)
			}
		case err != nil || m.Resource.String() != want || m.GroupVersionKind != gvk:
			t.Errorf("%s: got %+v, %v", gvk, m, err)
		}
	}
	if s.requests != 1 {
		t.Errorf("%d requests", s.requests)
	}
	d.Invalidate()
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil || s.requests != 2 {
		t.Errorf("%d requests, %v", s.requests, err)
	}
}

// A kind does not count as absent while a group does not answer.
func TestPartialDiscoveryProvesNoAbsence(t *testing.T) {
	s, d := newAPIServer()
	s.failed = map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("down")}
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil {
		t.Errorf("a kind of another group is not resolved: %v", err)
	}
	for _, gk := range []schema.GroupKind{{Group: "metrics.k8s.io", Kind: "NodeMetrics"},
		{Group: "g.io", Kind: "Widget"}} {
		if absent, err := d.Absent(t.Context(), gk); absent || err != nil {
			t.Errorf("%s: absent=%t, %v", gk, absent, err)
		}
	}
	if _, err := d.NamespacedResources(t.Context()); err == nil {
		t.Error("no error although the list of resources is incomplete")
	}
	for gk, known := range map[schema.GroupKind]bool{{Group: "metrics.k8s.io", Kind: "NodeMetrics"}: false,
		{Group: "g.io", Kind: "Widget"}: true} {
		if served, err := d.Serves(t.Context(), gk); served || (err == nil) != known {
			t.Errorf("%s: served=%t, %v", gk, served, err)
		}
	}
	asked := s.requests
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil || s.requests != asked {
		t.Errorf("%d requests for a cached kind, %v", s.requests-asked, err)
	}
	s.failed = nil
	d.fetchedAt = d.fetchedAt.Add(-settlePeriod)
	if _, err := d.NamespacedResources(t.Context()); err != nil {
		t.Errorf("a partial result is not renewed: %v", err)
	}
	if absent, err := d.Absent(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); !absent || err != nil {
		t.Errorf("absent=%t, %v", absent, err)
	}
}

func TestDiscoveryErrorsAreReturnedAndNotCached(t *testing.T) {
	s, d := newAPIServer(widgets)
	for name, fault := range map[string]*error{"no answer": &s.down, "no version": &s.versionErr} {
		*fault = errors.New("no route to host")
		d.Invalidate()
		_, err := d.Resolve(t.Context(), "g.io", "v1", "Widget")
		var missing *plan.NotServedError
		if err == nil || errors.As(err, &missing) {
			t.Errorf("%s: %v: want another error than NotServedError", name, err)
		}
		if absent, err := d.Absent(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); absent || err == nil {
			t.Errorf("%s: absent=%t, %v", name, absent, err)
		}
		if _, err := d.NamespacedResources(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := d.Capabilities(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if served, err := d.Serves(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); served || err == nil {
			t.Errorf("%s: served=%t, %v: want an error", name, served, err)
		}
		*fault = nil
		if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
			t.Errorf("%s: the failure is cached: %v", name, err)
		}
	}
}

func TestAbsent(t *testing.T) {
	s, d := newAPIServer(widgets)
	gk := schema.GroupKind{Group: "g.io", Kind: "Widget"}
	if absent, err := d.Absent(t.Context(), gk); absent || err != nil {
		t.Errorf("absent=%t, %v", absent, err)
	}
	s.lists = s.lists[:2] // its CRD is deleted, but the event has not arrived yet
	if absent, err := d.Absent(t.Context(), gk); !absent || err != nil {
		t.Errorf("absent=%t, %v: the cached result was used", absent, err)
	}
	for kind, want := range map[schema.GroupKind]bool{gk: false, {Kind: "Pod"}: true} {
		if served, err := d.Serves(t.Context(), kind); served != want || err != nil {
			t.Errorf("%s: served=%t, %v: the result of Absent was not cached", kind, served, err)
		}
	}
}

func TestNamespaced(t *testing.T) {
	verbs := []string{"list", "delete"}
	_, d := newAPIServer(resourceList("g.io/v1", resource("widgets", "Widget", true, verbs...),
		resource("zones", "Zone", false, verbs...)),
		resourceList("g.io/v1beta1", resource("widgets", "Widget", true, verbs...),
			resource("gadgets", "Gadget", true, verbs...)),
		resourceList("metrics.k8s.io/v1beta1", resource("pods", "PodMetrics", true, "get", "list")))
	got, err := d.NamespacedResources(t.Context())
	want := []schema.GroupVersionResource{{Group: "g.io", Version: "v1", Resource: "widgets"},
		{Group: "g.io", Version: "v1beta1", Resource: "gadgets"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestCapabilities(t *testing.T) {
	_, d := newAPIServer(widgets)
	got, err := d.Capabilities(t.Context())
	want := []string{"apps/v1", "apps/v1/Deployment", "apps/v1/Scale", "g.io/v1", "g.io/v1/Widget", "v1",
		"v1/ConfigMap", "v1/Namespace", "v1/Pod"}
	if err != nil || got.KubeVersion != "v1.37.2" || !slices.Equal(got.APIVersions, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Discovery lags behind the event of a CRD: it is repeated for some time, but not for every caller.
func TestDiscoveryIsRepeatedWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // with a fake clock
		s, d := newAPIServer()
		resolve := func() error { _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); return err }
		expectRequests := func(n int, why string) {
			t.Helper()
			before := s.requests
			for range 100 {
				_ = resolve()
			}
			if got := s.requests - before; got != n {
				t.Errorf("%s: %d requests, want %d", why, got, n)
			}
		}
		expectRequests(1, "no cached result")
		if d.Settling() {
			t.Error("settling without a change")
		}
		time.Sleep(time.Hour)
		expectRequests(0, "an hour without a change")
		d.MarkChanged()
		expectRequests(1, "after a change")
		if !d.Settling() {
			t.Error("not settling after a change")
		}
		time.Sleep(settleInterval)
		expectRequests(1, "after the settle interval")
		s.lists = append(s.lists, widgets)
		time.Sleep(settleInterval)
		if err := resolve(); err != nil {
			t.Errorf("the kind is served now: %v", err)
		}
		expectRequests(0, "the kind is cached")

		s.lists = s.lists[:2]
		d.MarkChanged()
		expectRequests(1, "after another change")
		time.Sleep(settlePeriod)
		if d.Settling() {
			t.Error("still settling after the settle period")
		}
		expectRequests(0, "after the settle period")
	})
}

func TestConcurrentDiscovery(t *testing.T) {
	s, d := newAPIServer(widgets)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
				t.Error(err)
			}
			d.MarkChanged()
			_, _ = d.Resolve(t.Context(), "g.io", "v1", "Nothing")
			_ = d.Settling()
		})
	}
	wg.Wait()
	if s.requests > 41 {
		t.Errorf("%d requests", s.requests)
	}
}

// While the server is slow, only callers that need its response wait, and not longer than their
// context.
func TestDiscoveryCallersHonorTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newAPIServer(widgets)
		s.allowed = make(chan struct{}, 10)
		resolve := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := d.Resolve(ctx, "g.io", "v1", "Widget"); done <- err }()
			synctest.Wait() // it waits
			return done
		}
		fetchCtx, cancelFetch := context.WithCancel(t.Context())
		fetching := resolve(fetchCtx)
		waitingCtx, cancel := context.WithCancel(t.Context())
		waiting := resolve(waitingCtx)
		if cancel(); !errors.Is(<-waiting, context.Canceled) {
			t.Error("a waiting caller ignores its context")
		}
		if d.Settling() {
			t.Error("settling without a change")
		}
		later := resolve(t.Context())
		if cancelFetch(); !errors.Is(<-fetching, context.Canceled) {
			t.Error("the fetching caller ignores its context")
		}
		synctest.Wait()
		if s.allowed <- struct{}{}; <-later != nil {
			t.Error("the next caller does not fetch in its place")
		}

		d.Invalidate()
		fetching = resolve(t.Context())
		d.MarkChanged()
		later = resolve(t.Context())
		if s.allowed <- struct{}{}; <-fetching != nil {
			t.Error("the fetching caller has no result")
		}
		synctest.Wait()
		select {
		case err := <-later:
			t.Errorf("a result from before the change was used, %v", err)
		default:
		}
		if s.allowed <- struct{}{}; <-later != nil {
			t.Error("no second fetch after the change")
		}
	})
}

// All callers that waited for a slow response use it: there is one request.
func TestConcurrentCallersShareOneDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newAPIServer(widgets)
		d.MarkChanged()
		s.allowed = make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(2 * settleInterval) // on the fake clock
		close(s.allowed)
		wg.Wait()
		if s.requests != 1 {
			t.Errorf("%d requests", s.requests)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	var more []*metav1.APIResourceList
	for i := range 60 { // as many kinds as in a cluster with some operators
		l := resourceList(fmt.Sprintf("g%d.io/v1", i))
		for k := range 5 {
			l.APIResources = append(l.APIResources,
				resource(fmt.Sprintf("things%d", k), fmt.Sprintf("Thing%d", k), true, "get", "list"))
		}
		more = append(more, l)
	}
	_, d := newAPIServer(more...)
	for b.Loop() {
		if _, err := d.Resolve(b.Context(), "apps", "v1", "Deployment"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIsCustomReadsTheDefinition(t *testing.T) {
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if !strings.HasSuffix(r.URL.Path, "/widgets.g.io") {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := NewServerDiscovery(client)
	for resource, want := range map[schema.GroupVersionResource]bool{
		{Group: "g.io", Version: "v1", Resource: "widgets"}:                           true,
		{Group: "h.io", Version: "v1", Resource: "widgets"}:                           false,
		{Version: "v1", Resource: "configmaps"}:                                       false,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}: false,
	} {
		if got := d.IsCustom(t.Context(), &meta.RESTMapping{Resource: resource}); got != want {
			t.Errorf("%s: got %t, want %t", resource, got, want)
		}
	}
	slices.Sort(paths)
	const prefix = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets."
	if want := []string{prefix + "g.io", prefix + "h.io"}; !slices.Equal(paths, want) {
		t.Errorf("requests %q, want %q", paths, want)
	}
}
