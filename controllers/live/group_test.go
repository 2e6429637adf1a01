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

// idleIndex returns an index with ConfigMaps in use that does not run.
func idleIndex(t *testing.T) (*Index, *testclock.FakeClock) {
	t.Helper()
	return idleIndexAt(t, "http://localhost:1")
}

// idleIndexAt is idleIndex with the URL of an API server.
func idleIndexAt(t *testing.T, url string) (*Index, *testclock.FakeClock) {
	t.Helper()
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ix, err := New(&rest.Config{Host: url}, Options{OwnerID: "inst", Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	ix.SetOwnerKinds(testOwner,
		[]*meta.RESTMapping{{GroupVersionKind: configMapKind, Resource: configMapKind.GroupVersion().
			WithResource("configmaps"), Scope: meta.RESTScopeNamespace}})
	return ix, c
}

func (ix *Index) onlyWatcher() (*group, *watcher) {
	for _, g := range ix.groups {
		for _, w := range g.watches {
			return g, w
		}
	}
	return nil, nil
}

type change func(u *unstructured.Unstructured)

func markedObject(uid string, rv int, changes ...change) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": "n", "name": "x", "uid": uid, "resourceVersion": strconv.Itoa(rv),
			"labels":      map[string]any{OwnerLabel: "inst"},
			"annotations": map[string]any{MarkAnnotation: Mark{Owner: testOwner, ID: testRef.ID()}.String()},
		}}}
	for _, c := range changes {
		c(u)
	}
	return u
}

func unmarked(u *unstructured.Unstructured)  { u.SetAnnotations(nil) }
func unlabeled(u *unstructured.Unstructured) { u.SetLabels(nil) }

// step is one input of an index: an event, a response or a call.
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
		_, w := ix.onlyWatcher()
		if err := w.storeObject(u); err != nil {
			t.Fatal(err)
		}
	}
}

func deleted(uid string, rv int) step {
	return func(_ *testing.T, ix *Index) {
		g, _ := ix.onlyWatcher()
		ix.hint(g, objectKey{"n", "x"}, types.UID(uid), uint64(rv))
	}
}

func gone(uid string) step {
	return func(_ *testing.T, ix *Index) { ix.ObserveGone(testRef, types.UID(uid)) }
}

func released(uid string, rv int) step {
	return func(_ *testing.T, ix *Index) { ix.ObserveReleased(testRef, types.UID(uid), strconv.Itoa(rv)) }
}

// TestPutKeepsNewestVersion feeds an index with events and responses in different orders.
func TestPutKeepsNewestVersion(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
		// want is uid@rv and the flags; empty if there must be no entry.
		want string
	}{
		{"a response, then the older event", []step{observed(markedObject(uid1, 9)), watched(markedObject(uid1, 8))},
			uid1 + "@9"},
		{"an event, then the older response", []step{watched(markedObject(uid1, 9)), observed(markedObject(uid1, 8))},
			uid1 + "@9"},
		{"versions compare as numbers", []step{watched(markedObject(uid1, 9)), watched(markedObject(uid1, 10))},
			uid1 + "@10"},
		{"a response without the label", []step{observed(markedObject(uid1, 9, unlabeled))}, uid1 + "@9 label lost"},
		{"a restored label", []step{observed(markedObject(uid1, 9, unlabeled)), watched(markedObject(uid1, 10))},
			uid1 + "@10"},
		{"an object without a mark", []step{watched(markedObject(uid1, 9, unmarked))}, ""},
		{"an object that lost its mark",
			[]step{watched(markedObject(uid1, 9)), watched(markedObject(uid1, 10, unmarked))}, uid1 + "@10 mark lost"},
		{"another object with the same name, unmarked",
			[]step{watched(markedObject(uid1, 9)), watched(markedObject(uid2, 10, unmarked))}, ""},
		{"another object with the same name, marked",
			[]step{watched(markedObject(uid1, 9)), watched(markedObject(uid2, 10))}, uid2 + "@10"},
		{"a deletion is a hint", []step{watched(markedObject(uid1, 9)), deleted(uid1, 10)}, uid1 + "@10 hinted"},
		{"a deletion of another object", []step{watched(markedObject(uid1, 9)), deleted(uid2, 10)}, uid1 + "@9"},
		{"a deletion older than the response", []step{observed(markedObject(uid1, 11)), deleted(uid1, 10)},
			uid1 + "@11"},
		{"a response older than the deletion",
			[]step{watched(markedObject(uid1, 9)), deleted(uid1, 10), observed(markedObject(uid1, 9))},
			uid1 + "@10 hinted"},
		{"a response newer than the deletion",
			[]step{watched(markedObject(uid1, 9)), deleted(uid1, 10), observed(markedObject(uid1, 11))}, uid1 + "@11"},
		{"gone", []step{watched(markedObject(uid1, 9)), gone(uid1)}, ""},
		{"another object gone", []step{watched(markedObject(uid1, 9)), gone(uid2)}, uid1 + "@9"},
		{"gone, then a late event", []step{watched(markedObject(uid1, 9)), gone(uid1), watched(markedObject(uid1, 10))},
			""},
		{"gone before the first event", []step{gone(uid1), watched(markedObject(uid1, 10))}, ""},
		{"released, then a late event",
			[]step{watched(markedObject(uid1, 9)), released(uid1, 11), watched(markedObject(uid1, 10))}, ""},
		{"released, then marked again",
			[]step{watched(markedObject(uid1, 9)), released(uid1, 11), watched(markedObject(uid1, 12))}, uid1 + "@12"},
		{"gone, then created again",
			[]step{watched(markedObject(uid1, 9)), gone(uid1), watched(markedObject(uid2, 12))}, uid2 + "@12"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ix, _ := idleIndex(t)
			for _, s := range tc.steps {
				s(t, ix)
			}
			if got := describe(ix); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDiffersForOwnerPerFlag(t *testing.T) {
	for flag, want := range map[flags]bool{flagFinished: true, flagDeleting: true, flagLabelLost: true,
		flagMarkLost: true, flagReplicas: true,
		flagProtected: true, flagSuspended: true, flagTrackedByTool: true, flagKeptByHelm: true,
		flagKeptWhenPruned: true, flagKeptWhenDeleted: true, flagHinted: false} {
		var before, after entry
		after.set(flag, true)
		if got := after.differsForOwner(&before); got != want {
			t.Errorf("flag %d: %v, want %v", flag, got, want)
		}
	}
}

func describe(ix *Index) string {
	g, _ := ix.onlyWatcher()
	e := g.objects[objectKey{"n", "x"}]
	if e == nil {
		return ""
	}
	s := fmt.Sprintf("%s@%d", e.UID(), e.resourceVersion)
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

// A list adds no hint to objects that are newer than the list.
func TestHintUnlistedSkipsNewerAndListed(t *testing.T) {
	ix, _ := idleIndex(t)
	g, w := ix.onlyWatcher()
	for i, n := range []string{"listed", "missing", "newer"} {
		u := markedObject(fmt.Sprintf("%d%s", i, uid1[1:]), 10*(i+1))
		u.SetName(n)
		u.SetAnnotations(
			map[string]string{MarkAnnotation: Mark{Owner: testOwner, ID: "n_" + n + "__ConfigMap"}.String()})
		observed(u)(t, ix)
	}
	w.listRound++
	g.objects[objectKey{"n", "listed"}].listRound = w.listRound
	ix.hintUnlisted(g, w, 25)
	for n, want := range map[string]bool{"listed": false, "missing": true, "newer": false} {
		if got := g.objects[objectKey{"n", n}].is(flagHinted); got != want {
			t.Errorf("%s: hinted %v, want %v", n, got, want)
		}
	}
}

func TestObserveIgnoresUnusedKind(t *testing.T) {
	ix, _ := idleIndex(t)
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
		t.Error("Observe accepts an object without a name")
	}
}

func TestTombstonesExpire(t *testing.T) {
	ix, c := idleIndex(t)
	for _, s := range []step{watched(markedObject(uid1, 9)), gone(uid1)} {
		s(t, ix)
	}
	g, _ := ix.onlyWatcher()
	c.Step(tombstoneTTL - 1)
	ix.cleanup()
	if len(g.tombstones) != 1 {
		t.Errorf("%d tombstones before the TTL, want 1", len(g.tombstones))
	}
	c.Step(1)
	ix.cleanup()
	if len(g.tombstones) != 0 {
		t.Errorf("%d tombstones after the TTL, want 0", len(g.tombstones))
	}
}

func TestSyncReasonTransitions(t *testing.T) {
	ix, c := idleIndex(t)
	_, w := ix.onlyWatcher()
	reason := func() SyncReason {
		if err := ix.Synced(configMapKind.GroupKind()); err != nil {
			var se *SyncError
			if !errors.As(err, &se) {
				t.Fatalf("%T is not a SyncError", err)
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
		{"before the first list", func() {}, Syncing},
		{"the list failed", func() { w.recordFailure(errInvalidObject) }, Syncing},
		{"listed and watching", func() { w.listed = true; w.recordConnected() }, ""},
		{"broken", func() { w.recordFailure(nil) }, ""},
		{"broken up to the limit", func() { c.Step(30 * time.Second) }, ""},
		{"broken for longer", func() { c.Step(1) }, Stale},
		{"another failure keeps the time of the first", func() { w.recordFailure(errInvalidObject) }, Stale},
		{"watching", func() { w.recordConnected() }, ""},
	} {
		s.do()
		if got := reason(); got != s.want {
			t.Errorf("%s: %q, want %q", s.name, got, s.want)
		}
	}
}

// A watch without users stays for a while, also when it breaks, and ends when its kind is gone.
func TestUnusedWatchEndsWithItsKind(t *testing.T) {
	var kind schema.GroupResource
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", kind, "", "", 0, true)
	for name, tc := range map[string]struct {
		err  error
		ends bool
	}{
		"the watch ended":          {},
		"the server is down":       {err: errInvalidObject},
		"the kind is not served":   {err: notServed, ends: true},
		"the account may not list": {err: apierrors.NewForbidden(kind, "", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			ix, _ := idleIndex(t)
			_, w := ix.onlyWatcher()
			w.recordFailure(tc.err)
			ix.SetOwnerKinds(testOwner, nil)
			if _, left := ix.onlyWatcher(); (left == nil) != tc.ends {
				t.Errorf("the watch is left: %t", left != nil)
			}
		})
	}
}

func TestPackUnpack(t *testing.T) {
	full := Object{
		Ref: testRef, Version: "v1", UID: uid1, ResourceVersion: "42", Mark: Mark{Owner: testOwner, ID: testRef.ID()},
		OwnedHash: strings.Repeat("A", ownedHashLen) + replicasSuffix, Readiness: Terminating, Message: "m",
		Finished: true, Deleting: true, LabelLost: true,
		Finalizers: []string{"a", "b"}, DeletionTimestamp: time.Unix(1, 0).UTC(), OtherManager: "kubectl",
		KeptFields: []KeptField{{Path: "/a", Value: []byte("1"), Ours: true},
			{Path: "/b", Withheld: true, Others: true}},
	}
	odd := full
	odd.UID, odd.ResourceVersion, odd.OwnedHash = "not-a-uuid", "v2-7", strings.Repeat("_", ownedHashLen)
	upper := full
	upper.UID, upper.ResourceVersion = "AAAAAAAA-2222-3333-4444-555555555555", "007"
	plain := Object{Ref: testRef, Version: "v1", UID: uid2, ResourceVersion: "1",
		OwnedHash: strings.Repeat("A", ownedHashLen), Mark: full.Mark}
	for _, o := range []Object{full, odd, upper, plain} {
		e := pack(&o, &interner{})
		e.owner = o.Mark.Owner
		e.set(flagLabelLost, o.LabelLost)
		if got := e.unpack(o.Ref.GroupKind(), objectKey{"n", "x"}); !reflect.DeepEqual(got, o) {
			t.Errorf("got  %+v\nwant %+v", got, o)
		}
		other := pack(&o, &interner{})
		other.owner, other.flags = e.owner, e.flags
		if e.differsForOwner(other) {
			t.Errorf("differsForOwner of %+v and itself is true", o)
		}
	}
}

func TestInternerIsBounded(t *testing.T) {
	var in interner
	for i := range 3 * maxInterned {
		in.intern(strconv.Itoa(i))
	}
	if len(in.byValue) > maxInterned {
		t.Errorf("%d strings", len(in.byValue))
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 100, max: 1000}
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := b.next(); got < want/2 || got >= want*3/2 {
			t.Errorf("wait %d is %d, want %d ±50 %%", i, got, want)
		}
	}
	b.reset()
	if got := b.next(); got >= 150 {
		t.Errorf("after a reset the wait is %d", got)
	}
}

func TestHintWaitsForOwnDeleteResponse(t *testing.T) {
	ix, _ := idleIndex(t)
	ix.ctx, ix.confirmQueue = t.Context(), ix.newConfirmQueue()
	t.Cleanup(ix.confirmQueue.ShutDown)
	g, _ := ix.onlyWatcher()
	hint := func(rv int) {
		if _, err := ix.Observe(markedObject(uid1, rv)); err != nil {
			t.Fatal(err)
		}
		ix.mu.Lock()
		ix.hint(g, objectKey{"n", "x"}, uid1, uint64(rv)+1)
		ix.mu.Unlock()
	}
	answered := ix.BeginDelete(testRef, uid1)
	hint(1)
	if n := ix.confirmQueue.Len(); n != 0 {
		t.Errorf("%d queued confirmations while the delete request is in flight, want 0", n)
	}
	answered()
	if n := ix.confirmQueue.Len(); n != 1 {
		t.Errorf("%d queued confirmations after an inconclusive response, want 1", n)
	}
	ref, _ := ix.confirmQueue.Get()
	ix.confirmQueue.Done(ref)

	answered = ix.BeginDelete(testRef, uid1)
	hint(3)
	ix.ObserveGone(testRef, uid1)
	answered()
	if n := ix.confirmQueue.Len(); n != 0 {
		t.Errorf("%d queued confirmations after the object is gone, want 0", n)
	}
}

// The API server responds 404 to each name of a kind that it no longer serves. The objects may
// still be served in another version.
func TestHintIsNotConfirmedWhileKindIsNotServed(t *testing.T) {
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
	ix, _ := idleIndexAt(t, server.URL)
	watched(markedObject(uid1, 1))(t, ix)
	deleted(uid1, 2)(t, ix)
	if err := ix.confirm(t.Context(), testRef); !isNotServed(err) {
		t.Errorf("error %v", err)
	}
	if _, ok := ix.Get(testRef); !ok {
		t.Error("the object was removed while its kind is not served")
	}
	served.Store(true)
	if err := ix.confirm(t.Context(), testRef); err != nil {
		t.Error(err)
	}
	if _, ok := ix.Get(testRef); ok {
		t.Error("the object is still in the index after the API server reported it as not found")
	}
}

// A reader that finds a kind synced finds its objects up to date: clearing a hint and storing the
// object happen under one lock.
func TestClearedHintStoresObjectAtomically(t *testing.T) {
	ix, _ := idleIndex(t)
	g, w := ix.onlyWatcher()
	w.listed = true
	for rv := 10; rv < 20_000; rv += 10 {
		watched(markedObject(uid1, rv))(t, ix)
		deleted(uid1, rv+1)(t, ix)
		g.unconfirmed[objectKey{"n", "x"}] = errInvalidObject
		raw, err := markedObject(uid1, rv+1, unlabeled).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var confirming sync.WaitGroup
		confirming.Go(func() {
			if err := ix.storeConfirmed(w, testRef, uid1, raw); err != nil {
				t.Error(err)
			}
		})
		for deadline := time.Now().Add(time.Minute); ix.Synced(testRef.GroupKind()) != nil; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("the hint is not cleared")
			}
		}
		if o, _ := ix.Get(testRef); !o.LabelLost {
			t.Fatal("the kind is synced, but the object is outdated")
		}
		confirming.Wait()
	}
}
