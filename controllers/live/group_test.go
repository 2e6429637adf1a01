package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/ksctl/gitops/stacks"
)

const (
	testOwner = "inst/local/KsctlInstall/n/a"
	uid1      = "11111111-2222-3333-4444-555555555555"
	uid2      = "99999999-2222-3333-4444-555555555555"
)

var (
	configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	testRef       = stacks.Ref{Kind: "ConfigMap", Namespace: "n", Name: "x"}
)

// idle is an index that is used for ConfigMaps and does not run.
func idle(t *testing.T) (*Index, *testclock.FakeClock) {
	t.Helper()
	return idleAt(t, "http://localhost:1")
}

// idleAt is idle with an API server.
func idleAt(t *testing.T, url string) (*Index, *testclock.FakeClock) {
	t.Helper()
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ix, err := New(&rest.Config{Host: url}, Options{Owner: "inst", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	ix.Use(testOwner, []*meta.RESTMapping{{GroupVersionKind: configMapKind, Resource: configMapKind.GroupVersion().WithResource("configmaps"), Scope: meta.RESTScopeNamespace}})
	return ix, c
}

func (ix *Index) onlyWatch() (*group, *watcher) {
	for _, g := range ix.groups {
		for _, w := range g.watches {
			return g, w
		}
	}
	return nil, nil
}

type change func(u *unstructured.Unstructured)

func markedObject(uid string, rv int, changes ...change) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
		"namespace": "n", "name": "x", "uid": uid, "resourceVersion": strconv.Itoa(rv),
		"labels":      map[string]any{OwnerLabel: "inst"},
		"annotations": map[string]any{MarkAnnotation: Mark{Owner: testOwner, ID: testRef.ID()}.String()},
	}}}
	for _, c := range changes {
		c(u)
	}
	return u
}

func unmarked(u *unstructured.Unstructured)   { u.SetAnnotations(nil) }
func unlabelled(u *unstructured.Unstructured) { u.SetLabels(nil) }

// step is one thing that an index hears.
type step func(t *testing.T, ix *Index)

func observed(u *unstructured.Unstructured) step {
	return func(t *testing.T, ix *Index) {
		if _, err := ix.Observe(u); err != nil {
			t.Fatal(err)
		}
	}
}

func watched(u *unstructured.Unstructured) step {
	return func(t *testing.T, ix *Index) {
		_, w := ix.onlyWatch()
		if err := w.storeObject(u); err != nil {
			t.Fatal(err)
		}
	}
}

func deleted(uid string, rv int) step {
	return func(_ *testing.T, ix *Index) {
		g, _ := ix.onlyWatch()
		ix.hint(g, name{"n", "x"}, types.UID(uid), uint64(rv))
	}
}

func gone(uid string) step {
	return func(_ *testing.T, ix *Index) { ix.ObserveGone(testRef, types.UID(uid)) }
}

func released(uid string, rv int) step {
	return func(_ *testing.T, ix *Index) { ix.ObserveReleased(testRef, types.UID(uid), strconv.Itoa(rv)) }
}

// TestNewestCounts feeds an index what comes in whatever order.
func TestNewestCounts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
		// want is uid@rv and flags; empty if there must be nothing.
		want string
	}{
		{"a response, then the older event", []step{observed(markedObject(uid1, 9)), watched(markedObject(uid1, 8))}, uid1 + "@9"},
		{"an event, then the older response", []step{watched(markedObject(uid1, 9)), observed(markedObject(uid1, 8))}, uid1 + "@9"},
		{"versions are numbers", []step{watched(markedObject(uid1, 9)), watched(markedObject(uid1, 10))}, uid1 + "@10"},
		{"a response without the label", []step{observed(markedObject(uid1, 9, unlabelled))}, uid1 + "@9 label lost"},
		{"a label that came back", []step{observed(markedObject(uid1, 9, unlabelled)), watched(markedObject(uid1, 10))}, uid1 + "@10"},
		{"an object without a mark", []step{watched(markedObject(uid1, 9, unmarked))}, ""},
		{"an object that lost its mark", []step{watched(markedObject(uid1, 9)), watched(markedObject(uid1, 10, unmarked))}, uid1 + "@10 mark lost"},
		{"another object of the name, unmarked", []step{watched(markedObject(uid1, 9)), watched(markedObject(uid2, 10, unmarked))}, ""},
		{"another object of the name, marked", []step{watched(markedObject(uid1, 9)), watched(markedObject(uid2, 10))}, uid2 + "@10"},
		{"a deletion is a hint", []step{watched(markedObject(uid1, 9)), deleted(uid1, 10)}, uid1 + "@10 hinted"},
		{"a deletion of another object", []step{watched(markedObject(uid1, 9)), deleted(uid2, 10)}, uid1 + "@9"},
		{"a deletion older than the response", []step{observed(markedObject(uid1, 11)), deleted(uid1, 10)}, uid1 + "@11"},
		{"a response older than the deletion", []step{watched(markedObject(uid1, 9)), deleted(uid1, 10), observed(markedObject(uid1, 9))}, uid1 + "@10 hinted"},
		{"a response newer than the deletion", []step{watched(markedObject(uid1, 9)), deleted(uid1, 10), observed(markedObject(uid1, 11))}, uid1 + "@11"},
		{"gone", []step{watched(markedObject(uid1, 9)), gone(uid1)}, ""},
		{"another object gone", []step{watched(markedObject(uid1, 9)), gone(uid2)}, uid1 + "@9"},
		{"gone, then a late event", []step{watched(markedObject(uid1, 9)), gone(uid1), watched(markedObject(uid1, 10))}, ""},
		{"gone before it was heard of", []step{gone(uid1), watched(markedObject(uid1, 10))}, ""},
		{"released, then a late event", []step{watched(markedObject(uid1, 9)), released(uid1, 11), watched(markedObject(uid1, 10))}, ""},
		{"released, then marked again", []step{watched(markedObject(uid1, 9)), released(uid1, 11), watched(markedObject(uid1, 12))}, uid1 + "@12"},
		{"gone, then made again", []step{watched(markedObject(uid1, 9)), gone(uid1), watched(markedObject(uid2, 12))}, uid2 + "@12"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ix, _ := idle(t)
			for _, s := range tc.steps {
				s(t, ix)
			}
			if got := describe(ix); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMattersForEachFlagThatOwnersActOn(t *testing.T) {
	for flag, want := range map[flags]bool{flagDone: true, flagDeleting: true, flagLabelLost: true, flagMarkLost: true, flagReplicas: true,
		flagProtected: true, flagSuspended: true, flagClaimed: true, flagHinted: false} {
		var before, after entry
		after.set(flag, true)
		if got := after.matters(&before); got != want {
			t.Errorf("flag %d: %v, want %v", flag, got, want)
		}
	}
}

func describe(ix *Index) string {
	g, _ := ix.onlyWatch()
	e := g.objects[name{"n", "x"}]
	if e == nil {
		return ""
	}
	s := fmt.Sprintf("%s@%d", e.UID(), e.rv)
	for _, f := range []struct {
		flag flags
		name string
	}{{flagLabelLost, " label lost"}, {flagMarkLost, " mark lost"}, {flagHinted, " hinted"}} {
		if e.is(f.flag) {
			s += f.name
		}
	}
	return s
}

// A list does not judge what is newer than it, nor what another version tells.
func TestUnlisted(t *testing.T) {
	ix, _ := idle(t)
	g, w := ix.onlyWatch()
	for i, n := range []string{"listed", "missing", "newer"} {
		u := markedObject(fmt.Sprintf("%d%s", i, uid1[1:]), 10*(i+1))
		u.SetName(n)
		u.SetAnnotations(map[string]string{MarkAnnotation: Mark{Owner: testOwner, ID: "n_" + n + "__ConfigMap"}.String()})
		observed(u)(t, ix)
	}
	w.round++
	g.objects[name{"n", "listed"}].round = w.round
	ix.unlisted(g, w, 25)
	for n, want := range map[string]bool{"listed": false, "missing": true, "newer": false} {
		if got := g.objects[name{"n", n}].is(flagHinted); got != want {
			t.Errorf("%s: hinted %v, want %v", n, got, want)
		}
	}
}

func TestObserveNeedsAUsedKind(t *testing.T) {
	ix, _ := idle(t)
	u := markedObject(uid1, 1)
	u.SetKind("Secret")
	if _, err := ix.Observe(u); err != nil {
		t.Fatal(err)
	}
	ix.ObserveGone(stacks.Ref{Kind: "Secret", Namespace: "n", Name: "x"}, uid1)
	if n := ix.Stats().Objects; n != 0 {
		t.Errorf("%d objects", n)
	}
	if _, err := ix.Observe(&unstructured.Unstructured{Object: map[string]any{"kind": "X"}}); err == nil {
		t.Error("something without a name was taken for an object")
	}
}

func TestGravesAreForgotten(t *testing.T) {
	ix, c := idle(t)
	for _, s := range []step{watched(markedObject(uid1, 9)), gone(uid1)} {
		s(t, ix)
	}
	g, _ := ix.onlyWatch()
	c.Step(graveFor - 1)
	ix.tidyOnce()
	if len(g.gone) != 1 {
		t.Errorf("%d graves before their time", len(g.gone))
	}
	c.Step(1)
	ix.tidyOnce()
	if len(g.gone) != 0 {
		t.Errorf("%d graves after their time", len(g.gone))
	}
}

func TestSyncStates(t *testing.T) {
	ix, c := idle(t)
	_, w := ix.onlyWatch()
	reason := func() SyncReason {
		if err := ix.Synced(configMapKind.GroupKind()); err != nil {
			var se *SyncError
			if !errors.As(err, &se) {
				t.Fatalf("%T is no SyncError", err)
			}
			return se.Reason
		}
		return ""
	}
	for _, s := range []struct {
		name string
		do   func()
		want SyncReason
	}{
		{"nothing heard", func() {}, Syncing},
		{"the list failed", func() { w.broken(errNoName) }, Syncing},
		{"listed and watching", func() { w.listed = true; w.connected() }, ""},
		{"broken", func() { w.broken(nil) }, ""},
		{"broken up to the limit", func() { c.Step(30 * time.Second) }, ""},
		{"broken for longer", func() { c.Step(1) }, Stale},
		{"broken again does not start anew", func() { w.broken(errNoName) }, Stale},
		{"watching", func() { w.connected() }, ""},
	} {
		s.do()
		if got := reason(); got != s.want {
			t.Errorf("%s: %q, want %q", s.name, got, s.want)
		}
	}
}

func TestPackUnpack(t *testing.T) {
	full := Object{
		Ref: testRef, Version: "v1", UID: uid1, ResourceVersion: "42", Mark: Mark{Owner: testOwner, ID: testRef.ID()},
		Owned: strings.Repeat("A", ownedHash) + holdsReplicas, Ready: Terminating, Message: "m", Done: true, Deleting: true, LabelLost: true,
		Finalizers: []string{"a", "b"}, DeletionTimestamp: time.Unix(1, 0).UTC(), OtherManager: "kubectl",
		Kept: []KeptField{{Path: "/a", Value: []byte("1"), Ours: true}, {Path: "/b", Withheld: true, Others: true}},
	}
	odd := full
	odd.UID, odd.ResourceVersion, odd.Owned = "not-a-uuid", "v2-7", strings.Repeat("_", ownedHash)
	upper := full
	upper.UID, upper.ResourceVersion = "AAAAAAAA-2222-3333-4444-555555555555", "007"
	plain := Object{Ref: testRef, Version: "v1", UID: uid2, ResourceVersion: "1", Owned: strings.Repeat("A", ownedHash), Mark: full.Mark}
	for _, o := range []Object{full, odd, upper, plain} {
		e := pack(&o, &interner{})
		e.owner = o.Mark.Owner
		e.set(flagLabelLost, o.LabelLost)
		if got := e.unpack(o.Ref.GroupKind(), name{"n", "x"}); !reflect.DeepEqual(got, o) {
			t.Errorf("got  %+v\nwant %+v", got, o)
		}
		other := pack(&o, &interner{})
		other.owner, other.flags = e.owner, e.flags
		if e.matters(other) {
			t.Errorf("%+v differs from itself", o)
		}
	}
}

func TestInternerIsBounded(t *testing.T) {
	var in interner
	for i := range 3 * maxInterned {
		in.get(strconv.Itoa(i))
	}
	if len(in.strings) > maxInterned {
		t.Errorf("%d strings", len(in.strings))
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 100, max: 1000}
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := b.next(); got < want/2 || got >= want*3/2 {
			t.Errorf("wait %d is %d, want %d give or take half", i, got, want)
		}
	}
	b.reset()
	if got := b.next(); got >= 150 {
		t.Errorf("after a reset the wait is %d", got)
	}
}

func TestAHintIsLeftToTheAnswerOfOurOwnDelete(t *testing.T) {
	ix, _ := idle(t)
	ix.ctx, ix.confirms = t.Context(), ix.newConfirms()
	t.Cleanup(ix.confirms.ShutDown)
	g, _ := ix.onlyWatch()
	hint := func(rv int) {
		if _, err := ix.Observe(markedObject(uid1, rv)); err != nil {
			t.Fatal(err)
		}
		ix.mu.Lock()
		ix.hint(g, name{"n", "x"}, uid1, uint64(rv)+1)
		ix.mu.Unlock()
	}
	answered := ix.Deleting(testRef, uid1)
	hint(1)
	if n := ix.confirms.Len(); n != 0 {
		t.Errorf("%d questions while the deletion is on its way, want 0", n)
	}
	answered()
	if n := ix.confirms.Len(); n != 1 {
		t.Errorf("%d questions after an answer that proves nothing, want 1", n)
	}
	ref, _ := ix.confirms.Get()
	ix.confirms.Done(ref)

	answered = ix.Deleting(testRef, uid1)
	hint(3)
	ix.ObserveGone(testRef, uid1)
	answered()
	if n := ix.confirms.Len(); n != 0 {
		t.Errorf("%d questions after the answer that it is gone, want 0", n)
	}
}

// A kind that is not served any more answers 404 to each name, and its objects may be served
// in another version.
func TestAHintIsNotConfirmedByAKindThatIsNotServed(t *testing.T) {
	var served atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !served.Load() {
			http.NotFound(w, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		status := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "x").Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	ix, _ := idleAt(t, server.URL)
	watched(markedObject(uid1, 1))(t, ix)
	deleted(uid1, 2)(t, ix)
	if err := ix.confirm(t.Context(), testRef); !isNotServed(err) {
		t.Errorf("error %v", err)
	}
	if _, ok := ix.Get(testRef); !ok {
		t.Error("the object counts as gone while its kind is not served")
	}
	served.Store(true)
	if err := ix.confirm(t.Context(), testRef); err != nil {
		t.Error(err)
	}
	if _, ok := ix.Get(testRef); ok {
		t.Error("the object is kept, and the API server has none of that name")
	}
}

// Who finds a kind synced finds its objects as they are: what takes back a hint
// stores what it learned at once.
func TestAHintIsTakenBackAtOnce(t *testing.T) {
	ix, _ := idle(t)
	g, w := ix.onlyWatch()
	w.listed = true
	for rv := 10; rv < 20_000; rv += 10 {
		watched(markedObject(uid1, rv))(t, ix)
		deleted(uid1, rv+1)(t, ix)
		g.unconfirmed[name{"n", "x"}] = errNoName
		raw, err := markedObject(uid1, rv+1, unlabelled).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var confirming sync.WaitGroup
		confirming.Go(func() {
			if err := ix.stillThere(w, testRef, uid1, raw); err != nil {
				t.Error(err)
			}
		})
		for deadline := time.Now().Add(time.Minute); ix.Synced(testRef.GroupKind()) != nil; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("the hint is not taken back")
			}
		}
		if o, _ := ix.Get(testRef); !o.LabelLost {
			t.Fatal("the kind is synced, and the object as it was before")
		}
		confirming.Wait()
	}
}
