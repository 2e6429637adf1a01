package engine

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

func rendered(name string, objects ...stacks.Object) stacks.RenderedComponent {
	return stacks.RenderedComponent{Name: name, Objects: objects}
}

func renderedObject(kind, group, version, namespace string) stacks.Object {
	return stacks.Object{Ref: stacks.Ref{Group: group, Kind: kind, Namespace: namespace, Name: "x"}, Version: version,
		Hash:     "hash",
		Manifest: json.RawMessage(`{}`)}
}

// completeAPIServer returns the Discovery of an API server that serves all verbs of its kinds but
// Probe.
func completeAPIServer() *ServerDiscovery {
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	return NewServerDiscovery(&apiServer{lists: []*metav1.APIResourceList{
		resourceList("v1", resource("configmaps", "ConfigMap", true, all...)),
		resourceList("g.io/v1", resource("widgets", "Widget", true, all...)),
		resourceList("h.io/v1", resource("zones", "Zone", false, all...), resource("probes", "Probe", true, "create")),
	}})
}

func prepareOne(t *testing.T, o stacks.Object, p plan.Policies, expr string) plan.Item {
	t.Helper()
	d := completeAPIServer()
	rc := rendered("c", o)
	rc.ReadyExpr = expr
	got := Prepare(t.Context(), []stacks.RenderedComponent{rc}, p, d)
	if len(got) != 1 || len(got[0].Items) != 1 {
		t.Fatalf("%+v", got)
	}
	return got[0].Items[0]
}

func TestPrepareChecksScope(t *testing.T) {
	defaulted := func(o stacks.Object) stacks.Object { o.NamespaceDefaulted = true; return o }
	for name, tc := range map[string]struct {
		object stacks.Object
		id     string
		err    any
	}{
		"namespaced":                {renderedObject("ConfigMap", "", "v1", "ns"), "ns_x__ConfigMap", nil},
		"cluster-scoped":            {renderedObject("Zone", "h.io", "v1", ""), "_x_h.io_Zone", nil},
		"cluster-scoped, defaulted": {defaulted(renderedObject("Zone", "h.io", "v1", "ns")), "_x_h.io_Zone", nil},
		"cluster-scoped with a namespace": {renderedObject("Zone", "h.io", "v1", "ns"), "ns_x_h.io_Zone",
			new(*plan.InvalidObjectError)},
		"namespaced, defaulted": {defaulted(renderedObject("Widget", "g.io", "v1", "ns")), "ns_x_g.io_Widget",
			nil},
		"only created": {renderedObject("Probe", "h.io", "v1", "ns"), "ns_x_h.io_Probe",
			new(*plan.InvalidObjectError)},
		"impossible namespace": {renderedObject("ConfigMap", "", "v1", "n/s"), "n/s_x__ConfigMap",
			new(*plan.InvalidObjectError)},
		"not served": {renderedObject("Gadget", "g.io", "v1", "ns"), "ns_x_g.io_Gadget",
			new(*plan.NotServedError)},
		"version not served": {renderedObject("Widget", "g.io", "v9", "ns"), "ns_x_g.io_Widget",
			new(*plan.NotServedError)},
		"not served, defaulted": {defaulted(renderedObject("Gadget", "g.io", "v1", "ns")), "ns_x_g.io_Gadget",
			new(*plan.NotServedError)},
	} {
		t.Run(name, func(t *testing.T) {
			it := prepareOne(t, tc.object, plan.Policies{}, "")
			if it.ID != tc.id || it.ID != it.Ref.ID() {
				t.Errorf("id %q, want %q", it.ID, tc.id)
			}
			if tc.err == nil && (it.ResolveErr != nil || it.Mapping == nil) {
				t.Errorf("%v", it.ResolveErr)
			}
			if tc.err != nil && !errors.As(it.ResolveErr, tc.err) {
				t.Errorf("got %v", it.ResolveErr)
			}
		})
	}
}

// The hash covers everything that is sent, and nothing else.
func TestContentHashCoversAllThatIsSent(t *testing.T) {
	cm, widget := renderedObject("ConfigMap", "", "v1", "ns"), renderedObject("Widget", "g.io", "v1", "ns")
	rules := func(paths ...string) plan.Policies { return plan.Policies{Ignore: []appsv1.IgnoreRule{{Paths: paths}}} }
	plain := prepareOne(t, widget, plan.Policies{}, "").ContentHash
	if plain != "hash" {
		t.Errorf("%q, want the hash of the manifest, because nothing is added", plain)
	}
	seen := map[string]string{"plain": plain}
	for name, want := range map[string]string{
		"ready":         prepareOne(t, widget, plan.Policies{}, "object.ok").ContentHash,
		"ready b":       prepareOne(t, widget, plan.Policies{}, "object.good").ContentHash,
		"ignored":       prepareOne(t, widget, rules("/a"), "").ContentHash,
		"ignored twice": prepareOne(t, widget, rules("/a", "/b"), "").ContentHash,
		"a comma":       prepareOne(t, widget, rules("/a,/b"), "").ContentHash,
		"both":          prepareOne(t, widget, rules("/a"), "object.ok").ContentHash,
	} {
		for other, w := range seen {
			if w == want {
				t.Errorf("%s and %s have the same hash", name, other)
			}
		}
		seen[name] = want
	}
	// Built-in kinds have their own readiness rules: the expression does not apply.
	if it := prepareOne(t, cm, plan.Policies{}, "object.ok"); it.ReadyExpr != "" || it.ContentHash != "hash" {
		t.Errorf("%q, %q", it.ReadyExpr, it.ContentHash)
	}
	// Policies that do not change the sent content are not in the hash.
	if it := prepareOne(t, cm,
		plan.Policies{Force: true, Prune: true, Drift: appsv1.DriftWarn, Adopt: appsv1.AdoptAlways},
		""); it.ContentHash != "hash" {
		t.Errorf("%q", it.ContentHash)
	}
}

func TestPrepareIgnore(t *testing.T) {
	target := func(t appsv1.IgnoreTarget) *appsv1.IgnoreTarget { return &t }
	for name, tc := range map[string]struct {
		target *appsv1.IgnoreTarget
		want   bool
	}{
		"no target":    {nil, true},
		"empty target": {target(appsv1.IgnoreTarget{}), true},
		"kind":         {target(appsv1.IgnoreTarget{Kind: "Widget"}), true},
		"all fields": {target(appsv1.IgnoreTarget{Group: "g.io", Kind: "Widget", Namespace: "ns", Name: "x"}),
			true},
		"another group":     {target(appsv1.IgnoreTarget{Group: "h.io", Kind: "Widget"}), false},
		"another kind":      {target(appsv1.IgnoreTarget{Kind: "Gadget"}), false},
		"another namespace": {target(appsv1.IgnoreTarget{Kind: "Widget", Namespace: "sn"}), false},
		"another name":      {target(appsv1.IgnoreTarget{Kind: "Widget", Name: "y"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []appsv1.IgnoreRule{{Target: tc.target, Paths: []string{"/a", "/b"}},
				{Target: target(appsv1.IgnoreTarget{Name: "x"}), Paths: []string{"/c"}}}
			want := []string{"/c"}
			if tc.want {
				want = []string{"/a", "/b", "/c"}
			}
			if it := prepareOne(t, renderedObject("Widget", "g.io", "v1", "ns"), plan.Policies{Ignore: rules},
				""); !slices.Equal(it.Ignore, want) {
				t.Errorf("got %v, want %v", it.Ignore, want)
			}
		})
	}
}

// An object that stays is applied in the step of its hook, and is no hook otherwise.
func TestPrepareObjectThatStays(t *testing.T) {
	_, d := newAPIServer()
	stays, hook := renderedObject("ConfigMap", "", "v1", "ns"), renderedObject("ConfigMap", "", "v1", "ns")
	stays.Hook = &stacks.Hook{Phase: stacks.HookPre, Weight: -5, Stays: true}
	hook.Name, hook.Hook = "hook", &stacks.Hook{Phase: stacks.HookPre}
	rc := rendered("c", stays, hook)
	items := Prepare(t.Context(), []stacks.RenderedComponent{rc}, plan.Policies{}, d)[0].Items
	if items[0].Hook != nil || items[0].RunsOnce || items[0].Step >= items[1].Step || !items[1].RunsOnce {
		t.Errorf("got %+v", items)
	}
	if rc.Objects[0].Hook == nil {
		t.Error("what was rendered is shared, and was changed")
	}
}

func TestPrepareComponent(t *testing.T) {
	_, d := newAPIServer()
	rc := rendered("c", renderedObject("Namespace", "", "v1", ""), renderedObject("ConfigMap", "", "v1", "ns"),
		renderedObject("Job", "batch", "v1", "ns"))
	rc.Version, rc.Wave, rc.DependsOn, rc.CreateNamespace = "1.2.3", 4, []string{"b"}, "shared"
	hook := renderedObject("ConfigMap", "", "v1", "ns")
	hook.Name, hook.Hook = "hook", post(0)
	rc.Objects = append(rc.Objects, hook)
	policies := plan.Policies{Ignore: []appsv1.IgnoreRule{{Paths: []string{"/metadata/labels"}}}}
	c := Prepare(t.Context(), []stacks.RenderedComponent{rc}, policies, d)[0]
	if c.Name != "c" || c.Version != "1.2.3" || c.Wave != 4 || !slices.Equal(c.DependsOn, []string{"b"}) ||
		len(c.Items) != 5 {
		t.Fatalf("%+v", c)
	}
	ns := c.Items[0]
	if !ns.Shared || ns.ID != "_shared__Namespace" || ns.Step != 0 || len(ns.Ignore) != 0 || ns.Mapping == nil ||
		ns.Mapping.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("%+v, want the shared namespace first", ns)
	}
	for i, want := range []struct {
		step int
		once bool
	}{{0, false}, {0, false}, {3, false}, {3, true}, {4, true}} {
		it := c.Items[i]
		if it.Step != want.step || it.RunsOnce != want.once || it.Component != "c" || it.Wave != 4 ||
			(i > 0 && it.Shared) {
			t.Errorf("item %d: step %d, once=%t, %s/%d, shared=%t", i, it.Step, it.RunsOnce, it.Component, it.Wave,
				it.Shared)
		}
	}
	if got := Prepare(t.Context(), nil, plan.Policies{}, d); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A manifest does not count as invalid while discovery fails.
func TestPrepareWhileDiscoveryFails(t *testing.T) {
	s, d := newAPIServer()
	s.down = errors.New("no route to host")
	components := Prepare(t.Context(),
		[]stacks.RenderedComponent{rendered("c", renderedObject("ConfigMap", "", "v1", "ns"))}, plan.Policies{}, d)
	in := &plan.Snapshot{Components: components, Inventory: plan.NewInventory(nil, nil), Policies: plan.DefaultPolicies}
	p := plan.Reconcile(in)
	if len(p.Actions) > 0 || len(p.Intents) > 0 || len(p.Waits) != 1 {
		t.Fatalf("%+v", p)
	}
	if p.Waits[0].Reason == plan.ReasonInvalid {
		t.Errorf("the manifest counts as invalid because of %v", p.Waits[0].Err)
	}
	if !p.Components[0].Failed {
		t.Error("not failed: no event would trigger a retry when the API server answers again")
	}
}
