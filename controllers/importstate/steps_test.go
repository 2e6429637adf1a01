package importstate

import (
	"encoding/base64"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/state"
)

// storeIn has the import go to ksctl's store in a namespace.
func (s *sending) storeIn(namespace string) {
	s.obj.Spec.Store = &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: namespace}}
}

// holds has the store in a namespace hold one state of "demo", as ksctl wrote it.
func (s *sending) holds(namespace, doc string) {
	s.Helper()
	c := s.api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata":   map[string]any{"namespace": namespace, "name": state.StoreConfigMap, "resourceVersion": "1"},
		"binaryData": map[string]any{demo: base64.StdEncoding.EncodeToString([]byte(doc))}}}
	_, err := c.Update(s.Context(), u, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.Create(s.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// left are the events that say that something stays where it was.
func (s *sending) left() (out []string) {
	for _, e := range s.events {
		if strings.HasPrefix(e, "StateKept: ") {
			out = append(out, e)
		}
	}
	return out
}

func TestADryRunElsewhereForgetsNothing(t *testing.T) {
	s := newSending(t)
	to := s.obj.Spec.Store
	s.commit(document("demo", "a"))
	s.storeIn("first")
	s.obj.Spec.DryRun = true
	s.done(false)
	if st := s.obj.Status; st.Store != "" || len(st.Clusters) != 1 || st.Clusters[0].Action != v1alpha1.StateCreate {
		t.Errorf("KsctlClusters look into a store that nothing was written to: %+v", st)
	}
	s.obj.Spec.DryRun = false
	s.done(false)
	s.holds("first", document("demo", "scaled"))
	const changed = "1 state and the credentials of 1 cloud in ksctl's store in namespace first; changed there since: 1 state"
	if got := s.done(false); got != changed {
		t.Fatalf("got %q", got)
	}
	before := s.obj.Status.DeepCopy()
	s.obj.Spec.DryRun = true
	const stays = "; status tells, as before, of ksctl's store in namespace first"
	s.storeIn("second")
	if got, want := s.done(false), "nothing is written (spec.dryRun); in ksctl's store in namespace second it would create 1 state and the credentials of 1 cloud and overwrite 0 states"+stays; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.obj.Spec.Store = to
	if got := s.done(false); !strings.Contains(got, "it would send 1 state") || !strings.HasSuffix(got, stays) {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Conflict = v1alpha1.RefuseConflict
	if got := s.stalled(ConflictReason); !strings.HasSuffix(got, stays) {
		t.Errorf("got %q", got)
	}
	if !apiequality.Semantic.DeepEqual(*before, s.obj.Status) || len(s.left()) > 0 {
		t.Errorf("%v, got %+v, was %+v", s.left(), s.obj.Status, *before)
	}
	s.wants("all that time", "")
	s.obj.Spec.DryRun, s.obj.Spec.Conflict = false, v1alpha1.OverwriteConflict
	s.storeIn("first")
	if got := s.done(false); got != changed {
		t.Errorf("what ksctl changed is another's now: %q", got)
	}
}

func TestWhatStaysElsewhereIsToldOnce(t *testing.T) {
	s := newSending(t)
	s.commit(document("demo", "a"))
	s.storeIn("first")
	s.done(false)
	forbidden := true
	s.api.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden && a.GetNamespace() == "second", nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	s.storeIn("second")
	for range 3 {
		if out, retried := s.pass(false).(reconcile.Retry); !retried || !apierrors.IsForbidden(out.Err) {
			t.Fatalf("got %#v", out)
		}
	}
	if got := s.left(); len(got) > 0 {
		t.Errorf("told before it left: %v", got)
	}
	forbidden = false
	for range 2 {
		s.done(false)
	}
	if got := s.left(); len(got) != 1 || got[0] != "StateKept: what was imported into ksctl's store in namespace first stays there, and is not looked after any more" {
		t.Errorf("got %q", got)
	}
}
