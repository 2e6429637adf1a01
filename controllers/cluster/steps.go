package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlCluster"

// maxAskTime bounds how long a cluster's answer may take, whatever spec.timeout says.
const maxAskTime = 10 * time.Second

// Steps reconcile a KsctlCluster.
type Steps struct {
	// Client reads from the cache, and writes labels of our own kind. Direct asks the API server
	// who uses a cluster that is being deleted.
	Client client.Client
	Direct client.Reader
	// Target is the cluster that the objects are in.
	Target *engine.Target
	Prober *Prober
	Clock  clock.PassiveClock
	// DefaultServiceAccount is used where an object names none; empty: it is refused.
	DefaultServiceAccount string
	// ArgoCDNamespaces may get Secrets by which Argo CD knows clusters.
	ArgoCDNamespaces []string
	// AllowInsecure takes kubeconfigs that do not verify who answers.
	AllowInsecure bool

	stores stores
	// memos are what was known last, written the Secrets as they were written or found.
	memos   reconcile.Kept[*memo]
	written reconcile.Kept[map[types.NamespacedName]record]
}

// record of a Secret.
type record struct {
	version string
	sum     [sha256.Size]byte
}

var _ reconcile.Steps[*clusterv1.KsctlCluster] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster]) reconcile.Outcome {
	timeout := reconcile.Timeout(&req.Object.Spec.Schedule)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
	defer cancel()
	before := req.Object.Status.DeepCopy()
	users, err := s.users(ctx, req.Object)
	if err != nil {
		return reconcile.Failed(err)
	}
	s.used(req.Object, users)
	out, asked := s.step(ctx, req, before)
	if !asked { // what it said before is of another time
		apimeta.RemoveStatusCondition(&req.Object.Status.Conditions, clusterv1.ReachableCondition)
	}
	return out
}

// step takes the next possible step; asked is true when it came to what the cluster says.
func (s *Steps) step(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], before *clusterv1.KsctlClusterStatus) (out reconcile.Outcome, asked bool) {
	obj := req.Object
	if err := s.allowed(obj.Spec.ArgoCD); err != nil {
		return reconcile.Failed(err), false
	}
	c, err := account.Client(ctx, s.Client, s.Target, s.account(obj))
	if err != nil {
		return account.Outcome(err, ""), false
	}
	k, err := s.know(ctx, obj, c)
	if err != nil {
		return reconcile.Failed(err), false
	}
	obj.Status.Facts, obj.Status.Server = k.facts, k.access.Server
	labels := labelsOf(k.facts)
	did, err := s.label(ctx, obj, relabel(obj.Labels, labels, labelsOf(before.Facts)))
	switch {
	case err != nil:
		return reconcile.Failed(err), false
	case did:
		return reconcile.Deferred{Until: s.Clock.Now().Add(time.Second)}, true // the change wakes it
	}
	if err := s.publish(ctx, req, c, k, labels); err != nil {
		return reconcile.Failed(err), false
	}
	return s.inquire(req, k, before), true
}

// account whose rights are used.
func (s *Steps) account(obj *clusterv1.KsctlCluster) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.Namespace, Name: cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)}
}

// label changes labels of the object itself, by which it is selected. It is true when there
// was something to change.
func (s *Steps) label(ctx context.Context, obj *clusterv1.KsctlCluster, changes map[string]any) (bool, error) {
	if len(changes) == 0 {
		return false, nil
	}
	now := &clusterv1.KsctlCluster{}
	now.Namespace, now.Name = obj.Namespace, obj.Name
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.UID, "labels": changes}})
	if err != nil {
		return false, err
	}
	if err := s.Client.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(live.FieldManager)); err != nil {
		return false, fmt.Errorf("labelling the cluster: %w", err)
	}
	return true, nil
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster]) reconcile.Outcome {
	obj := req.Object
	names := secretsOf(obj)
	if a := obj.Annotations[appsv1.AbandonAnnotation]; a != "" && a == string(obj.UID) {
		req.Event(corev1.EventTypeWarning, "Abandoned", fmt.Sprintf("left behind, because of the annotation %s: Secrets %v", appsv1.AbandonAnnotation, names))
		return reconcile.Done{Message: "its Secrets are left behind"}
	}
	users, err := s.usersNow(ctx, obj)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if s.used(obj, users); len(users) > 0 {
		// They need the kubeconfig as it is, to the end. How that stands is said after it.
		s.step(ctx, req, obj.Status.DeepCopy())
		return reconcile.Waiting{On: fmt.Sprintf("in use by %s, which go first: without the cluster's kubeconfig nothing could be removed there", listed(users)), Reason: InUseReason,
			Until: s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))} // those of other shards are not heard of
	}
	c, err := account.Client(ctx, s.Client, s.Target, s.account(obj))
	if err != nil {
		return s.withoutAccount(ctx, obj, names, err)
	}
	for _, name := range names {
		err := engine.DropSecret(ctx, c, name, OfAnnotation, of(obj))
		if apierrors.IsForbidden(err) { // its rights went first
			return s.withoutAccount(ctx, obj, names, err)
		}
		if err != nil {
			return reconcile.Retry{Err: fmt.Errorf("%w; or leave it, with the annotation %s: %s", err, appsv1.AbandonAnnotation, obj.UID)}
		}
	}
	return reconcile.Done{Message: "its Secrets are deleted"}
}

// withoutAccount lets an object go whose account is gone, if nothing of it is left. Nothing
// is deleted with the controller's own rights.
func (s *Steps) withoutAccount(ctx context.Context, obj *clusterv1.KsctlCluster, names []types.NamespacedName, cause error) reconcile.Outcome {
	c, err := s.Target.Client(nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	for _, name := range names {
		var have corev1.Secret
		found, err := engine.Read(ctx, c, secrets, name.Namespace, name.Name, &have)
		if err != nil {
			return reconcile.Retry{Err: err}
		}
		if found && have.Annotations[OfAnnotation] == of(obj) {
			return account.Outcome(fmt.Errorf("%w: Secret %s is to be deleted with its rights; or leave it, with the annotation %s: %s", cause, name, appsv1.AbandonAnnotation, obj.UID), "")
		}
	}
	return reconcile.Done{Message: "nothing is left"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	s.written.Drop(key)
	s.memos.Drop(key)
	s.Prober.Forget(key)
}
