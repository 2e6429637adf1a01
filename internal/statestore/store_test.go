package statestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/ksctl/gitops/stacks/state"
)

const team = "team"

// storeTest is a fake cluster with a ksctl store, which other clients can change.
type storeTest struct {
	*testing.T
	api *dynamicfake.FakeDynamicClient
	// writes is the number of writes by other clients.
	writes int
}

func newStoreTest(t *testing.T) *storeTest {
	t.Helper()
	r := &storeTest{T: t, api: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	// The fake client accepts a patch with any resourceVersion. An API server accepts only the
	// current one, or none.
	r.api.PrependReactor("patch", "*", func(a clientgotesting.Action) (bool, runtime.Object, error) {
		p := a.(clientgotesting.PatchAction)
		var body struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
			return true, nil, err
		}
		have, err := r.api.Tracker().Get(p.GetResource(), p.GetNamespace(), p.GetName())
		if err != nil {
			return true, nil, err
		}
		version := have.(metav1.Object).GetResourceVersion()
		if want := body.Metadata.ResourceVersion; want != "" && want != version {
			return true, nil,
				apierrors.NewConflict(p.GetResource().GroupResource(), p.GetName(),
					fmt.Errorf("it has version %s", version))
		}
		return false, nil, nil
	})
	return r
}

// kind is a kind of object in the store.
type kind struct {
	resource          schema.GroupVersionResource
	kind, name, field string
}

var (
	statesKind      = kind{configMaps, "ConfigMap", state.StoreConfigMap, "binaryData"}
	credentialsKind = kind{secrets, "Secret", state.StoreSecret, "data"}
)

// writeByOther replaces an object, with a new resourceVersion, like another client.
func (r *storeTest) writeByOther(k kind, values map[string]string) {
	r.Helper()
	r.writes++
	data := map[string][]byte{}
	for key, v := range values {
		data[key] = []byte(v)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": k.kind,
		"metadata": map[string]any{"namespace": team, "name": k.name, "resourceVersion": fmt.Sprint(r.writes)},
		k.field:    jsonOf(data)}}
	tracker := r.api.Tracker()
	err := tracker.Update(k.resource, u, team)
	if apierrors.IsNotFound(err) {
		err = tracker.Create(k.resource, u, team)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// jsonOf encodes bytes as the API server does.
func jsonOf(data map[string][]byte) map[string]any {
	body, _ := json.Marshal(data)
	var out map[string]any
	_ = json.Unmarshal(body, &out)
	return out
}

func (r *storeTest) deleteObject(k kind) {
	r.Helper()
	if err := r.api.Tracker().Delete(k.resource, team, k.name); err != nil {
		r.Fatal(err)
	}
}

func (r *storeTest) read() *Store {
	r.Helper()
	s, err := Read(r.Context(), r.api, team, true)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// expect compares the contents of the store.
func (r *storeTest) expect(k kind, want map[string]string) {
	r.Helper()
	s := r.read()
	data := s.States
	if k == credentialsKind {
		data = s.Credentials
	}
	got := map[string]string{}
	for key, v := range data {
		got[key] = string(v)
	}
	if !maps.Equal(got, want) {
		r.Errorf("%s has %v, want %v", k.kind, got, want)
	}
}

// expectConflict checks that err is a conflict, and reloads the store.
func (r *storeTest) expectConflict(s *Store, err error) {
	r.Helper()
	if err == nil {
		r.Fatal("the write replaced the change of another client")
	}
	if err := s.ReloadAfterConflict(r.Context(), err); err != nil {
		r.Fatalf("got %v, want a conflict", err)
	}
}

// write sets the value of one key, or removes the key if value is empty.
func (k kind) write(r *storeTest, s *Store, key, value string) error {
	values, keys := map[string][]byte{key: []byte(value)}, []string{key}
	switch {
	case k == statesKind && value == "":
		return s.Remove(r.Context(), keys, nil)
	case k == statesKind:
		return s.Write(r.Context(), values, nil)
	case value == "":
		return s.Remove(r.Context(), nil, keys)
	}
	return s.Write(r.Context(), nil, values)
}

func TestWriteConflictsWithOtherWriters(t *testing.T) {
	for _, k := range []kind{statesKind, credentialsKind} {
		for what, value := range map[string]string{"write": "mine", "remove": ""} {
			t.Run(what+" "+k.kind, func(t *testing.T) {
				r := newStoreTest(t)
				r.writeByOther(k, map[string]string{"one": "a", "two": "a"})
				s := r.read()
				theirs := map[string]string{"one": "theirs", "two": "theirs"}
				r.writeByOther(k, theirs)
				err := k.write(r, s, "one", value)
				if !apierrors.IsConflict(err) {
					t.Errorf("got %v, want a conflict", err)
				}
				r.expect(k, theirs)
				r.expectConflict(s, err)
				if err := k.write(r, s, "one", value); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"one": value, "two": "theirs"}
				if value == "" {
					delete(want, "one")
				}
				r.expect(k, want)
			})
		}
	}
}

func TestWriteConflictsWithCreateAndDelete(t *testing.T) {
	for _, k := range []kind{statesKind, credentialsKind} {
		t.Run(k.kind, func(t *testing.T) {
			r := newStoreTest(t)
			s := r.read()
			if s.HasStates || s.HasCredentials {
				t.Errorf("got %+v", s.Contents)
			}
			theirs := map[string]string{"one": "theirs"}
			r.writeByOther(k, theirs)
			err := k.write(r, s, "one", "mine")
			r.expect(k, theirs)
			r.expectConflict(s, err)
			r.deleteObject(k)
			r.expectConflict(s, k.write(r, s, "one", "mine"))
			r.expect(k, nil)
			if err := k.write(r, s, "one", "mine"); err != nil {
				t.Fatal(err)
			}
			r.expect(k, map[string]string{"one": "mine"})
		})
	}
}

// ReloadAfterConflict returns errors other than conflicts unchanged.
func TestReloadReturnsOtherErrors(t *testing.T) {
	r := newStoreTest(t)
	r.api.PrependReactor("create", "*", func(a clientgotesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.GetNamespace())
	})
	s := r.read()
	err := s.Write(t.Context(), map[string][]byte{"one": []byte("mine")}, nil)
	if err == nil || !strings.Contains(err.Error(), "namespace team does not exist: create the namespace") {
		t.Errorf("got %v", err)
	}
	if again := s.ReloadAfterConflict(t.Context(), err); !errors.Is(again, err) {
		t.Errorf("got %v", again)
	}
}

func TestReadDetectsExternalStore(t *testing.T) {
	r := newStoreTest(t)
	if r.read().External {
		t.Error("got External for a store without the Secret of a MongoDB")
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": team, "name": state.ExternalStoreSecret}}}
	if err := r.api.Tracker().Create(secrets, secret, team); err != nil {
		t.Fatal(err)
	}
	if !r.read().External {
		t.Error("want External for a store with the Secret of a MongoDB")
	}
}

func TestCountSummaryJoinMessagesAndTruncate(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{CountSummary(0, 0), "0 states"}, {CountSummary(2, 0), "2 states"},
		{CountSummary(0, 1), "the credentials of 1 cloud"},
		{CountSummary(1, 2), "1 state and the credentials of 2 clouds"},
		{JoinMessages([]string{"a", "b"}), "a; b"},
		{JoinMessages(strings.Split("abcdefg", "")), "a; b; c; d; e; and 2 more"},
		{Truncate("añ", 2), "a"}, {Truncate("a", 2), "a"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
