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

// storeIn sets the destination to the ksctl store in a namespace.
func (s *importTest) storeIn(namespace string) {
	s.obj.Spec.Store = &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: namespace}}
}

// writeStore writes a store with one state of "demo", as ksctl would.
func (s *importTest) writeStore(namespace, doc string) {
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

// keptEvents returns the events about entries that stay at a previous destination.
func (s *importTest) keptEvents() (out []string) {
	for _, e := range s.events {
		if strings.HasPrefix(e, "StateKept: ") {
			out = append(out, e)
		}
	}
	return out
}

func TestDryRunForOtherDestinationKeepsStatus(t *testing.T) {
	s := newImportTest(t)
	to := s.obj.Spec.Store
	s.commit(document("demo", "a"))
	s.storeIn("first")
	s.obj.Spec.DryRun = true
	s.done(false)
	if st := s.obj.Status; st.Store != "" || len(st.Clusters) != 1 || st.Clusters[0].Action != v1alpha1.StateCreate {
		t.Errorf("the status names a store that was not written: %+v", st)
	}
	s.obj.Spec.DryRun = false
	s.done(false)
	s.writeStore("first", document("demo", "scaled"))
	const changed = "1 state and the credentials of 1 cloud in the ksctl store in namespace first; changed in the " +
		"store since the import: 1 state"
	if got := s.done(false); got != changed {
		t.Fatalf("got %q", got)
	}
	before := s.obj.Status.DeepCopy()
	s.obj.Spec.DryRun = true
	const suffix = "; the status still describes the ksctl store in namespace first"
	s.storeIn("second")
	if got, want := s.done(false), "spec.dryRun: would create 1 state and the credentials of 1 cloud and overwrite 0 "+
		"states in the ksctl store in namespace second"+suffix; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.obj.Spec.Store = to
	if got := s.done(false); !strings.Contains(got, "would send 1 state") || !strings.HasSuffix(got, suffix) {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Conflict = v1alpha1.RefuseConflict
	if got := s.stalled(v1alpha1.StateConflictReason); !strings.HasSuffix(got, suffix) {
		t.Errorf("got %q", got)
	}
	if !apiequality.Semantic.DeepEqual(*before, s.obj.Status) || len(s.keptEvents()) > 0 {
		t.Errorf("%v, got %+v, was %+v", s.keptEvents(), s.obj.Status, *before)
	}
	s.wantReceived("dry runs and conflicts", "")
	s.obj.Spec.DryRun, s.obj.Spec.Conflict = false, v1alpha1.OverwriteConflict
	s.storeIn("first")
	if got := s.done(false); got != changed {
		t.Errorf("the change of ksctl is not recognized: %q", got)
	}
}

func TestDestinationChangeEmitsOneEvent(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("demo", "a"))
	s.storeIn("first")
	s.done(false)
	forbidden := true
	s.api.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden && a.GetNamespace() == "second", nil,
			apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	s.storeIn("second")
	for range 3 {
		if out, retried := s.pass(false).(reconcile.Retry); !retried || !apierrors.IsForbidden(out.Err) {
			t.Fatalf("got %#v", out)
		}
	}
	if got := s.keptEvents(); len(got) > 0 {
		t.Errorf("event before the destination changed: %v", got)
	}
	forbidden = false
	for range 2 {
		s.done(false)
	}
	if got := s.keptEvents(); len(got) != 1 ||
		got[0] != "StateKept: states that were imported into the ksctl store in namespace first stay there and are "+
			"no longer managed" {
		t.Errorf("got %q", got)
	}
}
