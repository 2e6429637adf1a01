package engine

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

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
