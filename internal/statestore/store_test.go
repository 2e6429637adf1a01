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

// rig is a cluster that is none, with ksctl's store in it. Others write there, too.
type rig struct {
	*testing.T
	api *dynamicfake.FakeDynamicClient
	// writes that others have done.
	writes int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, api: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	// The fake one takes a patch of any version. An API server takes that of what it has, or of none.
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
			return true, nil, apierrors.NewConflict(p.GetResource().GroupResource(), p.GetName(), fmt.Errorf("it has version %s", version))
		}
		return false, nil, nil
	})
	return r
}

// kind of object that the store is made of.
type kind struct {
	resource          schema.GroupVersionResource
	kind, name, field string
}

var (
	statesKind      = kind{configMaps, "ConfigMap", state.StoreConfigMap, "binaryData"}
	credentialsKind = kind{secrets, "Secret", state.StoreSecret, "data"}
)

// others write an object as a whole, under another version.
func (r *rig) others(k kind, values map[string]string) {
	r.Helper()
	r.writes++
	data := map[string][]byte{}
	for key, v := range values {
		data[key] = []byte(v)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": k.kind,
		"metadata": map[string]any{"namespace": team, "name": k.name, "resourceVersion": fmt.Sprint(r.writes)}, k.field: jsonOf(data)}}
	tracker := r.api.Tracker()
	err := tracker.Update(k.resource, u, team)
	if apierrors.IsNotFound(err) {
		err = tracker.Create(k.resource, u, team)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// jsonOf has bytes as the API server writes them.
func jsonOf(data map[string][]byte) map[string]any {
	body, _ := json.Marshal(data)
	var out map[string]any
	_ = json.Unmarshal(body, &out)
	return out
}

func (r *rig) gone(k kind) {
	r.Helper()
	if err := r.api.Tracker().Delete(k.resource, team, k.name); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) read() *Store {
	r.Helper()
	s, err := Read(r.Context(), r.api, team, true)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// has compares what the store holds with what it should.
func (r *rig) has(k kind, want map[string]string) {
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
		r.Errorf("%s holds %v, want %v", k.kind, got, want)
	}
}

// taken expects that somebody else was first, and reads what that one has written.
func (r *rig) taken(s *Store, err error) {
	r.Helper()
	if err == nil {
		r.Fatal("it was written over what somebody else has written since it was read")
	}
	if err := s.Reread(r.Context(), err); err != nil {
		r.Fatalf("it is not for another try: %v", err)
	}
}

// write changes one value, or takes it out if there is none.
func (k kind) write(r *rig, s *Store, key, value string) error {
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

func TestOthersWriteFirst(t *testing.T) {
	for _, k := range []kind{statesKind, credentialsKind} {
		for what, value := range map[string]string{"write": "mine", "remove": ""} {
			t.Run(what+" "+k.kind, func(t *testing.T) {
				r := newRig(t)
				r.others(k, map[string]string{"one": "a", "two": "a"})
				s := r.read()
				theirs := map[string]string{"one": "theirs", "two": "theirs"}
				r.others(k, theirs)
				err := k.write(r, s, "one", value)
				if !apierrors.IsConflict(err) {
					t.Errorf("got %v, want a conflict", err)
				}
				r.has(k, theirs)
				r.taken(s, err)
				if err := k.write(r, s, "one", value); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"one": value, "two": "theirs"}
				if value == "" {
					delete(want, "one")
				}
				r.has(k, want)
			})
		}
	}
}

func TestOthersMakeAStoreOrDeleteIt(t *testing.T) {
	for _, k := range []kind{statesKind, credentialsKind} {
		t.Run(k.kind, func(t *testing.T) {
			r := newRig(t)
			s := r.read()
			if s.HasStates || s.HasCredentials {
				t.Errorf("got %+v", s.Held)
			}
			theirs := map[string]string{"one": "theirs"}
			r.others(k, theirs)
			err := k.write(r, s, "one", "mine")
			r.has(k, theirs)
			r.taken(s, err)
			r.gone(k)
			r.taken(s, k.write(r, s, "one", "mine"))
			r.has(k, nil)
			if err := k.write(r, s, "one", "mine"); err != nil {
				t.Fatal(err)
			}
			r.has(k, map[string]string{"one": "mine"})
		})
	}
}

// What another try does not mend is no reason to read again.
func TestAnotherError(t *testing.T) {
	r := newRig(t)
	r.api.PrependReactor("create", "*", func(a clientgotesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.GetNamespace())
	})
	s := r.read()
	err := s.Write(t.Context(), map[string][]byte{"one": []byte("mine")}, nil)
	if err == nil || !strings.Contains(err.Error(), "there is no namespace team: create it") {
		t.Errorf("got %v", err)
	}
	if again := s.Reread(t.Context(), err); !errors.Is(again, err) {
		t.Errorf("got %v", again)
	}
}

func TestAStoreElsewhere(t *testing.T) {
	r := newRig(t)
	if r.read().External {
		t.Error("nothing says that the states are in a MongoDB")
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": team, "name": state.ExternalStoreSecret}}}
	if err := r.api.Tracker().Create(secrets, secret, team); err != nil {
		t.Fatal(err)
	}
	if !r.read().External {
		t.Error("the states are in a MongoDB")
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Said(0, 0), "0 states"}, {Said(2, 0), "2 states"}, {Said(0, 1), "the credentials of 1 cloud"},
		{Said(1, 2), "1 state and the credentials of 2 clouds"},
		{Lines([]string{"a", "b"}), "a; b"}, {Lines(strings.Split("abcdefg", "")), "a; b; c; d; e; and 2 more"},
		{Clip("añ", 2), "a"}, {Clip("a", 2), "a"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
