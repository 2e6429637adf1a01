package importstate

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// storeIn has the import go to ksctl's store in a namespace.
func (s *sending) storeIn(namespace string) {
	s.obj.Spec.Store = &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: namespace}}
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
