package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// apiServer is what an API server serves, for discovery alone.
type apiServer struct {
	discovery.DiscoveryInterfaceWithContext

	mu    sync.Mutex
	asked int
	lists []*metav1.APIResourceList
	// failed are groups that do not answer; down is set when nothing does.
	failed        map[schema.GroupVersion]error
	down, noTells error
	// answers, when set, lets one answer through for each that is in it.
	answers chan struct{}
}

func (s *apiServer) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.answers != nil {
		select {
		case <-s.answers:
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
			g = &metav1.APIGroup{Name: gv.Group, PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}}
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
	return &version.Info{GitVersion: "v1.37.2"}, s.noTells
}

func serves(groupVersion string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: resources}
}

func resource(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
}

var widgets = serves("g.io/v1", resource("widgets", "Widget", true, "get", "list"))

func newAPIServer(more ...*metav1.APIResourceList) (*apiServer, *ServerDiscovery) {
	s := &apiServer{lists: append([]*metav1.APIResourceList{
		serves("v1", resource("configmaps", "ConfigMap", true, "get", "list"), resource("namespaces", "Namespace", false, "get", "list"),
			resource("pods", "Pod", true, "get", "list"), resource("pods/log", "Pod", true, "get"), resource("bindings", "Binding", true, "create")),
		serves("apps/v1", resource("deployments", "Deployment", true, "get", "list"), resource("deployments/scale", "Scale", true, "get")),
	}, more...)}
	return s, NewServerDiscovery(s)
}

func TestResolve(t *testing.T) {
	s, d := newAPIServer(widgets, serves("g.io/v2", resource("widgets", "Widget", true, "get", "list")))
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
		var missing *NotServedError
		switch {
		case want == "" || want == "built in":
			if !errors.As(err, &missing) || missing.GVK != gvk || missing.BuiltIn != (want == "built in") {
				t.Errorf("%s: %v (%+v)", gvk, err, missing)
			}
		case err != nil || m.Resource.String() != want || m.GroupVersionKind != gvk:
			t.Errorf("%s: got %+v, %v", gvk, m, err)
		}
	}
	if s.asked != 1 {
		t.Errorf("asked %d times", s.asked)
	}
	d.Reset()
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil || s.asked != 2 {
		t.Errorf("asked %d times, %v", s.asked, err)
	}
}

// A group that does not answer proves nothing about its kinds.
func TestDiscoveryInPart(t *testing.T) {
	s, d := newAPIServer()
	s.failed = map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("down")}
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil {
		t.Errorf("the others are there: %v", err)
	}
	for _, gk := range []schema.GroupKind{{Group: "metrics.k8s.io", Kind: "NodeMetrics"}, {Group: "g.io", Kind: "Widget"}} {
		if absent, err := d.Absent(t.Context(), gk); absent || err != nil {
			t.Errorf("%s: absent=%t, %v", gk, absent, err)
		}
	}
	if _, err := d.Namespaced(t.Context()); err == nil {
		t.Error("a namespace whose content is not known in full must not pass for empty")
	}
	for gk, known := range map[schema.GroupKind]bool{{Group: "metrics.k8s.io", Kind: "NodeMetrics"}: false, {Group: "g.io", Kind: "Widget"}: true} {
		if served, err := d.Serves(t.Context(), gk); served || (err == nil) != known {
			t.Errorf("%s: served=%t, %v", gk, served, err)
		}
	}
	asked := s.asked
	if _, err := d.Resolve(t.Context(), "", "v1", "ConfigMap"); err != nil || s.asked != asked {
		t.Errorf("asked %d times at once, %v", s.asked-asked, err)
	}
	s.failed = nil
	d.asked = d.asked.Add(-settling)
	if _, err := d.Namespaced(t.Context()); err != nil {
		t.Errorf("it is asked again after a while: %v", err)
	}
	if absent, err := d.Absent(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); !absent || err != nil {
		t.Errorf("absent=%t, %v", absent, err)
	}
}

func TestDiscoveryWithoutAnAnswer(t *testing.T) {
	s, d := newAPIServer(widgets)
	for name, fault := range map[string]*error{"no answer": &s.down, "no version": &s.noTells} {
		*fault = errors.New("no route to host")
		d.Reset()
		_, err := d.Resolve(t.Context(), "g.io", "v1", "Widget")
		var missing *NotServedError
		if err == nil || errors.As(err, &missing) {
			t.Errorf("%s: %v: nothing is known of the kind", name, err)
		}
		if absent, err := d.Absent(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); absent || err == nil {
			t.Errorf("%s: absent=%t, %v", name, absent, err)
		}
		if _, err := d.Namespaced(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := d.Capabilities(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if served, err := d.Serves(t.Context(), schema.GroupKind{Group: "g.io", Kind: "Widget"}); served || err == nil {
			t.Errorf("%s: served=%t, %v: nothing is known of the kind", name, served, err)
		}
		*fault = nil
		if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
			t.Errorf("%s: a fault must not be remembered: %v", name, err)
		}
	}
}

func TestAbsent(t *testing.T) {
	s, d := newAPIServer(widgets)
	gk := schema.GroupKind{Group: "g.io", Kind: "Widget"}
	if absent, err := d.Absent(t.Context(), gk); absent || err != nil {
		t.Errorf("absent=%t, %v", absent, err)
	}
	s.lists = s.lists[:2] // its definition is deleted, and no event came yet
	if absent, err := d.Absent(t.Context(), gk); !absent || err != nil {
		t.Errorf("absent=%t, %v: it must not be taken from memory", absent, err)
	}
	for kind, want := range map[schema.GroupKind]bool{gk: false, {Kind: "Pod"}: true} {
		if served, err := d.Serves(t.Context(), kind); served != want || err != nil {
			t.Errorf("%s: served=%t, %v: what it learned is for the others, too", kind, served, err)
		}
	}
}

func TestNamespaced(t *testing.T) {
	verbs := []string{"list", "delete"}
	_, d := newAPIServer(serves("g.io/v1", resource("widgets", "Widget", true, verbs...), resource("zones", "Zone", false, verbs...)),
		serves("g.io/v1beta1", resource("widgets", "Widget", true, verbs...), resource("gadgets", "Gadget", true, verbs...)),
		serves("metrics.k8s.io/v1beta1", resource("pods", "PodMetrics", true, "get", "list")))
	got, err := d.Namespaced(t.Context())
	want := []schema.GroupVersionResource{{Group: "g.io", Version: "v1", Resource: "widgets"}, {Group: "g.io", Version: "v1beta1", Resource: "gadgets"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestCapabilities(t *testing.T) {
	_, d := newAPIServer(widgets)
	got, err := d.Capabilities(t.Context())
	want := []string{"apps/v1", "apps/v1/Deployment", "apps/v1/Scale", "g.io/v1", "g.io/v1/Widget", "v1", "v1/ConfigMap", "v1/Namespace", "v1/Pod"}
	if err != nil || got.KubeVersion != "v1.37.2" || !slices.Equal(got.APIVersions, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Discovery lags behind the event of a definition: for some time an answer that
// a kind is not served is asked for again, but not by each that waits for it.
func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes by itself
		s, d := newAPIServer()
		resolve := func() error { _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); return err }
		asks := func(n int, why string) {
			t.Helper()
			before := s.asked
			for range 100 {
				_ = resolve()
			}
			if got := s.asked - before; got != n {
				t.Errorf("%s: asked %d times, want %d", why, got, n)
			}
		}
		asks(1, "nothing is known")
		if d.Settling() {
			t.Error("nothing changed")
		}
		time.Sleep(time.Hour)
		asks(0, "nothing changed")
		d.Changed()
		asks(1, "something changed")
		if !d.Settling() {
			t.Error("something changed")
		}
		time.Sleep(settlingStep)
		asks(1, "the answer is old")
		s.lists = append(s.lists, widgets)
		time.Sleep(settlingStep)
		if err := resolve(); err != nil {
			t.Errorf("it is served by now: %v", err)
		}
		asks(0, "it is known")

		s.lists = s.lists[:2]
		d.Changed()
		asks(1, "something changed")
		time.Sleep(settling)
		if d.Settling() {
			t.Error("it has settled")
		}
		asks(0, "it has settled")
	})
}

func TestDiscoverySideBySide(t *testing.T) {
	s, d := newAPIServer(widgets)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
				t.Error(err)
			}
			d.Changed()
			_, _ = d.Resolve(t.Context(), "g.io", "v1", "Nothing")
			_ = d.Settling()
		})
	}
	wg.Wait()
	if s.asked > 41 {
		t.Errorf("asked %d times", s.asked)
	}
}

// While the server takes its time, nobody waits but those that need its answer, and
// they no longer than they want to.
func TestNobodyWaitsForWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newAPIServer(widgets)
		s.answers = make(chan struct{}, 10)
		resolve := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := d.Resolve(ctx, "g.io", "v1", "Widget"); done <- err }()
			synctest.Wait() // it waits
			return done
		}
		first, stop := context.WithCancel(t.Context())
		asks := resolve(first)
		impatient, cancel := context.WithCancel(t.Context())
		waits := resolve(impatient)
		if cancel(); !errors.Is(<-waits, context.Canceled) {
			t.Error("one that waits for who asks has a context of its own")
		}
		if d.Settling() {
			t.Error("nothing changed")
		}
		later := resolve(t.Context())
		if stop(); !errors.Is(<-asks, context.Canceled) {
			t.Error("who asks has a context of its own")
		}
		synctest.Wait()
		if s.answers <- struct{}{}; <-later != nil {
			t.Error("the next one asks in its place")
		}

		d.Reset()
		asks = resolve(t.Context())
		d.Changed()
		later = resolve(t.Context())
		if s.answers <- struct{}{}; <-asks != nil {
			t.Error("it has its answer")
		}
		synctest.Wait()
		select {
		case err := <-later:
			t.Errorf("an answer from before the change is no answer, %v", err)
		default:
		}
		if s.answers <- struct{}{}; <-later != nil {
			t.Error("it is asked again")
		}
	})
}

// However long an answer takes, those that waited for it take it: one asks for all.
func TestOneAsksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newAPIServer(widgets)
		d.Changed()
		s.answers = make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := d.Resolve(t.Context(), "g.io", "v1", "Widget"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(2 * settlingStep) // the bubble's time
		close(s.answers)
		wg.Wait()
		if s.asked != 1 {
			t.Errorf("asked %d times", s.asked)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	var more []*metav1.APIResourceList
	for i := range 60 { // as many kinds as a cluster with some operators has
		l := serves(fmt.Sprintf("g%d.io/v1", i))
		for k := range 5 {
			l.APIResources = append(l.APIResources, resource(fmt.Sprintf("things%d", k), fmt.Sprintf("Thing%d", k), true, "get", "list"))
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
