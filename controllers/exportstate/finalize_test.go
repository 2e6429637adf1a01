package exportstate

import (
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgotesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// deleted expects how a deletion goes: done, or tried again with words.
func (r *rig) deleted(wants string) {
	r.Helper()
	out := r.steps.Finalize(r.Context(), &reconcile.Request[*v1alpha1.ExportState]{Object: r.obj})
	switch out := out.(type) {
	case reconcile.Done:
		if out.Message != wants {
			r.Errorf("got %+v, want %s", out, wants)
		}
	case reconcile.Retry:
		if !strings.Contains(out.Err.Error(), wants) || !strings.Contains(out.Err.Error(), "set spec.deletionPolicy to Keep") {
			r.Errorf("got %+v, want %s", out, wants)
		}
	default:
		r.Errorf("got %T %+v, want %s", out, out, wants)
	}
}

// toSecret is an export whose Secret is there, and is to go with it.
func toSecret(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.obj.Spec.To, r.obj.Spec.DeletionPolicy = v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "states"}}, v1alpha1.DeleteState
	r.store(map[string]string{"demo": "one"})
	r.done("1 state in Secret states")
	return r
}

// loseAccount deletes the account, as when the namespace is deleted.
func (r *rig) loseAccount() {
	r.Helper()
	gone := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "exporter"}}
	if err := r.steps.Client.(client.Client).Delete(r.Context(), gone); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) loseSecret(name string) {
	r.Helper()
	if err := r.api.Tracker().Delete(secrets, team, name); err != nil {
		r.Fatal(err)
	}
}

func TestTheAccountGoesFirst(t *testing.T) {
	r := toSecret(t)
	r.loseAccount()
	r.api.ClearActions()
	r.deleted("ServiceAccount team/exporter does not exist: create it, or change spec.serviceAccountName: Secret team/states is to be deleted with its rights")
	for _, a := range r.api.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s with rights that are not the account's", a.GetVerb(), a.GetResource().Resource)
		}
	}
	r.loseSecret("states")
	r.deleted("nothing is left")
	r.secret(team, "states", map[string]string{"somebody": "else's"})
	r.deleted("nothing is left")
}

func TestTheRightsGoFirst(t *testing.T) {
	r := toSecret(t)
	forbidden := true
	r.steps.Target.Client = func(as *types.NamespacedName) (*engine.Client, error) {
		forbidden = as != nil
		return &engine.Client{Interface: r.api}, nil
	}
	r.api.PrependReactor("get", "secrets", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return forbidden, nil, apierrors.NewForbidden(secrets.GroupResource(), "states", nil)
	})
	r.deleted("Secret team/states is to be deleted with its rights")
	r.loseSecret("states")
	r.deleted("nothing is left")
}

// A commit stays in any case, so nothing is needed to leave it: neither an account nor the
// Secret that opens the repository.
func TestAnExportToGitIsAlwaysLetGo(t *testing.T) {
	for _, prune := range []bool{false, true} {
		r := newRig(t)
		r.obj.Spec.DeletionPolicy, r.obj.Spec.Prune = v1alpha1.DeleteState, prune
		r.store(map[string]string{"demo": "one"})
		r.secret(team, "login", map[string]string{"username": "robot", "password": "hunter2"})
		r.obj.Spec.To.Git.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
		r.done("1 state")
		r.loseAccount()
		r.loseSecret("login")
		r.deleted("what was exported stays")
		r.commits(1)
	}
}
