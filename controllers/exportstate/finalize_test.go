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

// wantFinalized finalizes the export. It expects Done with this message, or Retry with an error
// that contains it and the hint on how to keep the files.
func (r *exportTest) wantFinalized(want string) {
	r.Helper()
	out := r.steps.Finalize(r.Context(), &reconcile.Request[*v1alpha1.ExportState]{Object: r.obj})
	switch out := out.(type) {
	case reconcile.Done:
		if out.Message != want {
			r.Errorf("got %+v, want %s", out, want)
		}
	case reconcile.Retry:
		if !strings.Contains(out.Err.Error(), want) ||
			!strings.Contains(out.Err.Error(), "set spec.deletionPolicy to Keep") {
			r.Errorf("got %+v, want %s", out, want)
		}
	default:
		r.Errorf("got %T %+v, want %s", out, out, want)
	}
}

// toSecret returns a exportTest whose export has written a Secret and deletes it when it is
// deleted.
func toSecret(t *testing.T) *exportTest {
	t.Helper()
	r := newExportTest(t)
	r.obj.Spec.To, r.obj.Spec.DeletionPolicy = v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "states"}},
		v1alpha1.DeleteState
	r.store(map[string]string{"demo": "one"})
	r.done("1 state in Secret states")
	return r
}

// deleteAccount deletes the service account, as the deletion of the namespace would.
func (r *exportTest) deleteAccount() {
	r.Helper()
	gone := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "exporter"}}
	if err := r.steps.Client.(client.Client).Delete(r.Context(), gone); err != nil {
		r.Fatal(err)
	}
}

func (r *exportTest) deleteSecret(name string) {
	r.Helper()
	if err := r.api.Tracker().Delete(secretGVR, team, name); err != nil {
		r.Fatal(err)
	}
}

func TestFinalizeAfterAccountIsDeleted(t *testing.T) {
	r := toSecret(t)
	r.deleteAccount()
	r.api.ClearActions()
	r.wantFinalized("ServiceAccount team/exporter does not exist: create it, " +
		"or change spec.serviceAccountName: deleting Secret team/states needs the permissions of the account")
	for _, a := range r.api.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s without the permissions of the account", a.GetVerb(), a.GetResource().Resource)
		}
	}
	r.deleteSecret("states")
	r.wantFinalized("nothing is left")
	r.secret(team, "states", map[string]string{"somebody": "else's"})
	r.wantFinalized("nothing is left")
}

func TestFinalizeAfterPermissionsAreRevoked(t *testing.T) {
	r := toSecret(t)
	forbidden := true
	r.steps.Target.ClientFor = func(as *types.NamespacedName) (*engine.Client, error) {
		forbidden = as != nil
		return &engine.Client{Interface: r.api}, nil
	}
	r.api.PrependReactor("get", "secrets", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return forbidden, nil, apierrors.NewForbidden(secretGVR.GroupResource(), "states", nil)
	})
	r.wantFinalized("deleting Secret team/states needs the permissions of the account")
	r.deleteSecret("states")
	r.wantFinalized("nothing is left")
}

// Commits always stay, so the deletion needs neither the account nor the Secret of the repository.
func TestGitExportIsDeletedWithoutAccountOrSecret(t *testing.T) {
	for _, prune := range []bool{false, true} {
		r := newExportTest(t)
		r.obj.Spec.DeletionPolicy, r.obj.Spec.Prune = v1alpha1.DeleteState, prune
		r.store(map[string]string{"demo": "one"})
		r.secret(team, "login", map[string]string{"username": "robot", "password": "hunter2"})
		r.obj.Spec.To.Git.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
		r.done("1 state")
		r.deleteAccount()
		r.deleteSecret("login")
		r.wantFinalized("the exported files stay")
		r.commits(1)
	}
}
