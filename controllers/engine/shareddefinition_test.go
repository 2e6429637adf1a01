package engine

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// objectIndex is an index that only knows objects.
type objectIndex struct {
	Index
	objects map[stacks.Ref]live.Object
}

func (i objectIndex) Get(ref stacks.Ref) (live.Object, bool) {
	o, ok := i.objects[ref]
	return o, ok
}

// The warning that the account may not read a definition ends when it may. What was compared is not
// read again.
func TestSchemasAreComparedOnceTheyMayBeRead(t *testing.T) {
	gvk := stacks.DefinitionKind.WithVersion("v1")
	gvr := gvk.GroupVersion().WithResource("customresourcedefinitions")
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(gvk)
	crd.SetName("widgets.example.com")
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{gvr: "CustomResourceDefinitionList"}, crd)
	var forbidden error = apierrors.NewForbidden(gvr.GroupResource(), crd.GetName(), nil)
	client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden != nil, nil, forbidden
	})
	r := stacks.Ref{Group: gvk.Group, Kind: gvk.Kind, Name: crd.GetName()}
	shared := []plan.Action{{Live: &live.Object{Ref: r, UID: "uid", Mark: live.Mark{Owner: other.String()}},
		Item: &plan.Item{Object: stacks.Object{Ref: r, Manifest: []byte("{}")}, ID: r.ID(),
			Mapping: &meta.RESTMapping{Resource: gvr, GroupVersionKind: gvk, Scope: meta.RESTScopeRoot}}}}
	e := New(Options{})
	for i, requests := range []int{1, 2, 3, 3} {
		if i == 2 {
			forbidden = nil
		}
		a := e.newExecutor(Pass{Owner: manifestOwner{}, Client: &Client{Interface: client}})
		a.compareSchemas(t.Context(), shared)
		if warned := len(a.report.Warnings) > 0; warned != (i < 2) || len(client.Actions()) != requests {
			t.Errorf("pass %d: warnings %v, requests %v", i, a.report.Warnings, client.Actions())
		}
	}
}

// manifestOwner is an owner of items that have their manifests.
type manifestOwner struct{ emptyOwner }

func (manifestOwner) Manifest(_ context.Context, it *plan.Item) (json.RawMessage, error) {
	return it.Object.Manifest, nil
}

// A pass that does not know what the owner desires, such as the preview of a removal, changes
// nothing of what is known about the definitions that the owner uses.
func TestFormerOwnersAreKeptByPassesWithoutComponents(t *testing.T) {
	crd := stacks.Ref{Group: stacks.DefinitionKind.Group, Kind: stacks.DefinitionKind.Kind, Name: "widgets.example.com"}
	id, index := crd.ID(), objectIndex{objects: map[stacks.Ref]live.Object{}}
	c := clocktesting.NewFakePassiveClock(noon)
	e := New(Options{Clock: c})
	e.definitions.record(me.String(), id, definitionUse{owner: other.DisplayName(), compared: "x"})
	pass := func(desired map[string]bool) *executor {
		a := e.newExecutor(Pass{Owner: emptyOwner{}, Target: &Target{Index: index}})
		a.desired = desired
		return a
	}
	awaited := func(desired map[string]bool) bool {
		a := pass(desired)
		in, _ := a.snapshot()
		return in.FormerOwners[id] == other.DisplayName()
	}
	desired := map[string]bool{id: true}
	own := live.Object{Ref: crd, Mark: live.Mark{Owner: me.String(), ID: id}}

	pass(desired).updateDefinitions()
	if awaited(nil) || !awaited(desired) {
		t.Error("want that a pass with components, and no other, waits for the former owner")
	}
	c.SetTime(noon.Add(recreationGrace - time.Second))
	if !awaited(desired) {
		t.Error("want that it waits until the end of the grace")
	}
	c.SetTime(noon.Add(recreationGrace))
	if awaited(desired) {
		t.Error("want that it does not wait longer")
	}
	index.objects[crd] = live.Object{Ref: crd, Mark: live.Mark{Owner: other.String(), ID: id}}
	pass(desired).updateDefinitions()
	if awaited(desired) || e.definitions.get(me.String(), id).compared != "x" {
		t.Error("want that the definition is known, and that nobody waits for it, while it exists")
	}
	delete(index.objects, crd)
	if !awaited(desired) {
		t.Error("want that it waits again")
	}
	for name, change := range map[string]func() map[string]bool{
		"it is not desired": func() map[string]bool { return nil },
		"it is our own":     func() map[string]bool { index.objects[crd] = own; return desired },
		"it was not created again": func() map[string]bool {
			delete(index.objects, crd)
			pass(desired).updateDefinitions()
			c.SetTime(c.Now().Add(recreationGrace))
			return desired
		},
	} {
		e.definitions.record(me.String(), id, definitionUse{owner: other.DisplayName()})
		pass(change()).updateDefinitions()
		if use := e.definitions.get(me.String(), id); use != (definitionUse{}) {
			t.Errorf("%s: %+v is still known", name, use)
		}
	}
}
