package engine

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// A webhook configuration that waits for workloads is read once in a pass.
func TestFindExistingReadsWebhooksThatWait(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations"}
	gvk := gvr.GroupVersion().WithKind("ValidatingWebhookConfiguration")
	hook := &unstructured.Unstructured{}
	hook.SetGroupVersionKind(gvk)
	hook.SetName("hook")
	r := stacks.Ref{Group: gvk.Group, Kind: gvk.Kind, Name: "hook"}
	it := &plan.Item{Object: stacks.Object{Ref: r}, ID: r.ID(), Mapping: &meta.RESTMapping{Resource: gvr,
		GroupVersionKind: gvk, Scope: meta.RESTScopeRoot}}
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", gvr.GroupResource(), "hook", "", 0, false)
	}
	for name, tc := range map[string]struct {
		reason   plan.Reason
		err      error
		objects  []runtime.Object
		replan   bool
		exists   bool
		requests int
		backsOff bool
	}{
		"it exists":         {objects: []runtime.Object{hook}, replan: true, exists: true, requests: 1},
		"it does not exist": {requests: 1},
		"it may not be read": {objects: []runtime.Object{hook}, err: status(http.StatusForbidden),
			requests: 1},
		"it cannot be read": {objects: []runtime.Object{hook}, err: status(http.StatusInternalServerError), requests: 1,
			replan: true, backsOff: true},
		"another wait": {objects: []runtime.Object{hook}, reason: plan.ReasonBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{gvr: gvk.Kind + "List"}, tc.objects...)
			client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.err != nil, nil, tc.err
			})
			e := New(Options{})
			a := e.newExecutor(Pass{Owner: emptyOwner{}, Client: &Client{Interface: client},
				Retry: RetryPolicy{Interval: time.Minute}})
			act := plan.Action{Verb: plan.VerbWait, Reason: plan.ReasonAwaitsWorkloads, Item: it}
			act.Entry.ID = it.ID
			if tc.reason != "" {
				act.Reason = tc.reason
			}
			replan, err := a.findExisting(t.Context(), &plan.Plan{Waits: []plan.Action{act}})
			if err != nil || replan != tc.replan || a.existing[it.ID] != tc.exists {
				t.Errorf("another plan %t, exists %t, error %v", replan, a.existing[it.ID], err)
			}
			again, err := a.findExisting(t.Context(), &plan.Plan{Waits: []plan.Action{act}})
			if again || err != nil || len(client.Actions()) != tc.requests {
				t.Errorf("another plan %t, error %v, requests %v; want %d", again, err, client.Actions(), tc.requests)
			}
			if backsOff := len(e.backoffs.active(me.String(), e.clock.Now())) > 0; backsOff != tc.backsOff {
				t.Errorf("backs off: %t", backsOff)
			}
		})
	}
}

// A create-only object that exists is read once in an interval, also by later passes.
func TestFindExistingReadsCreateOnlyObjects(t *testing.T) {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	cm := &unstructured.Unstructured{}
	cm.SetGroupVersionKind(gvr.GroupVersion().WithKind("ConfigMap"))
	cm.SetNamespace("ns")
	cm.SetName("a")
	r := stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	it := &plan.Item{Object: stacks.Object{Ref: r, CreateOnly: true}, ID: r.ID(), Mapping: &meta.RESTMapping{
		Resource: gvr, GroupVersionKind: cm.GroupVersionKind(), Scope: meta.RESTScopeNamespace}}
	act := plan.Action{Verb: plan.VerbCreate, Reason: plan.ReasonNew, Item: it}
	act.Entry.ID = it.ID
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{gvr: "ConfigMapList"}, cm)
	now := clocktesting.NewFakePassiveClock(time.Now())
	e := New(Options{Clock: now})
	pass := func() (found bool, a *executor) {
		t.Helper()
		a = e.newExecutor(Pass{Owner: emptyOwner{}, Client: &Client{Interface: client},
			Retry: RetryPolicy{Interval: time.Minute, ContestedInterval: time.Hour}})
		a.desired = map[string]bool{it.ID: true}
		a.rememberExisting()
		if a.existing[it.ID] {
			return true, a
		}
		found, err := a.findExisting(t.Context(), &plan.Plan{Actions: []plan.Action{act}})
		if err != nil || found != a.existing[it.ID] {
			t.Fatalf("another plan %t, exists %t, error %v", found, a.existing[it.ID], err)
		}
		return found, a
	}
	for i, step := range []struct {
		after    time.Duration
		exists   bool
		requests int
	}{{0, true, 1}, {59 * time.Minute, true, 1}, {time.Minute, true, 2}} {
		now.SetTime(now.Now().Add(step.after))
		exists, a := pass()
		if exists != step.exists || len(client.Actions()) != step.requests || a.settleAt.IsZero() {
			t.Errorf("pass %d: exists %t, requests %v, next at %s", i, exists, client.Actions(), a.settleAt)
		}
	}
	if err := client.Resource(gvr).Namespace("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.ResetBackoff(me)
	if exists, _ := pass(); exists {
		t.Error("it was deleted, and a user requests a reconcile")
	}
}
