package install

import (
	"errors"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
)

// The keys are read with the service account, and again only when their Secret or the account
// changes.
func TestDecryptionKeysAreReadWhenSecretChanges(t *testing.T) {
	age := secret("age", "1", "")
	age.Data = map[string][]byte{"own.agekey": []byte("k")}
	r := newValuesTest(t, age)
	keys := func() (*content.Keys, error) {
		_, _, keys, err := r.inputs(t.Context(), r.o, r.server)
		return keys, err
	}
	if k, err := keys(); k != nil || err != nil || r.reads > 0 {
		t.Errorf("without spec.decryption: %v, %v", k, err)
	}
	r.o.req.Object.Spec.Decryption = &appsv1.Decryption{Provider: "sops",
		SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
	first, err := keys()
	if err != nil || first.Fingerprint() == "" || r.reads != 1 {
		t.Fatalf("%v, %d reads", err, r.reads)
	}
	if again, err := keys(); err != nil || again.Fingerprint() != first.Fingerprint() || r.reads != 1 {
		t.Errorf("%v, %d reads", err, r.reads)
	}
	r.denied = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "age", errors.New("no"))
	r.o.req.Object.Spec.ServiceAccountName = "another"
	if _, err := keys(); !apierrors.IsForbidden(err) {
		t.Errorf("the keys are not read again with another service account: %v", err)
	}
	r.denied = nil
	if err := r.cache.Delete(t.Context(),
		&corev1.Secret{ObjectMeta: meta("age", "")}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	_, err = keys()
	if step, ok := errors.AsType[*reconcile.StepError](err); !ok || step.Reason != appsv1.SecretNotFoundReason {
		t.Errorf("with a deleted Secret: %v", err)
	}
}
