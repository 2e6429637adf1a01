package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// maxProbeTimeout bounds the timeout of a probe, if spec.timeout is longer.
const maxProbeTimeout = 10 * time.Second

// Steps reconciles KsctlClusters.
type Steps struct {
	// Client reads from the cache, and writes the labels of KsctlClusters. Direct reads the users
	// of a cluster from the API server, before the cluster is finalized.
	Client client.Client
	Direct client.Reader
	// Target is the cluster that the KsctlClusters are in.
	Target *engine.Target
	Prober *Prober
	Clock  clock.PassiveClock
	// DefaultServiceAccount is used if the spec names no service account; empty: such an object
	// is Stalled.
	DefaultServiceAccount string
	// ArgoCDNamespaces are the namespaces that cluster Secrets of Argo CD may be written to.
	ArgoCDNamespaces []string
	// AllowInsecure allows kubeconfigs that disable TLS verification.
	AllowInsecure bool

	stores  storeCache
	objects reconcile.ObjectCache[*objectState]
}

// objectState is what is kept of a cluster between reconciles.
type objectState struct {
	// info is the last clusterInfo, infoKey a key for the inputs that it was read from.
	info    clusterInfo
	infoKey string
	// secrets has the version and the hash of each Secret when it was last written or read.
	secrets map[types.NamespacedName]secretRecord
}

// secretRecord is the resourceVersion of a Secret, and the hash of its desired state at that
// version.
type secretRecord struct {
	version string
	hash    [sha256.Size]byte
}

var _ reconcile.Steps[*clusterv1.KsctlCluster] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster]) reconcile.Outcome {
	ctx, cancel := reconcile.WithTimeout(ctx, &req.Object.Spec.Schedule)
	defer cancel()
	before := req.Object.Status.DeepCopy()
	users, err := s.cachedUsers(ctx, req.Object)
	if err != nil {
		return reconcile.OutcomeOf(err, "")
	}
	s.reportUsers(req.Object, users)
	out, err := s.reconcileCluster(ctx, req, before)
	if err != nil { // the last probe result is outdated
		apimeta.RemoveStatusCondition(&req.Object.Status.Conditions, clusterv1.ReachableCondition)
		return reconcile.OutcomeOf(err, "")
	}
	return out
}

// reconcileCluster reconciles the labels, the Secrets and the reachability, in this order. It
// returns an error if it ended before the kubeconfig and the Secrets were up to date.
func (s *Steps) reconcileCluster(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster],
	before *clusterv1.KsctlClusterStatus) (reconcile.Outcome, error) {
	obj := req.Object
	if err := s.checkArgoCDNamespace(obj.Spec.ArgoCD); err != nil {
		return nil, err
	}
	c, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Target, obj, s.accountOf(obj).Name)
	if err != nil {
		return nil, err
	}
	k, err := s.info(ctx, obj, c)
	if err != nil {
		return nil, err
	}
	obj.Status.Facts, obj.Status.Server = k.facts, k.access.Server
	labels := labelsOf(k.facts)
	patched, err := s.patchLabels(ctx, obj, labelPatch(obj.Labels, labels, labelsOf(before.Facts)))
	switch {
	case err != nil:
		return nil, err
	case patched:
		return reconcile.Deferred{RequeueAt: s.Clock.Now().Add(time.Second)}, nil // the update enqueues the cluster
	}
	if err := s.publish(ctx, req, c, k, labels); err != nil {
		return nil, err
	}
	return s.checkReachability(req, k, before), nil
}

// stateOf returns what is kept of a cluster.
func (s *Steps) stateOf(obj *clusterv1.KsctlCluster) (*objectState, error) {
	return s.objects.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*objectState, error) {
		return &objectState{secrets: map[types.NamespacedName]secretRecord{}}, nil
	})
}

// accountOf returns the service account whose permissions are used.
func (s *Steps) accountOf(obj *clusterv1.KsctlCluster) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.Namespace,
		Name: cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)}
}

// patchLabels changes the selector labels of the KsctlCluster. It returns true if there was a
// change.
func (s *Steps) patchLabels(ctx context.Context, obj *clusterv1.KsctlCluster, changes map[string]any) (bool, error) {
	if len(changes) == 0 {
		return false, nil
	}
	target := &clusterv1.KsctlCluster{}
	target.Namespace, target.Name = obj.Namespace, obj.Name
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.UID, "labels": changes}})
	if err != nil {
		return false, err
	}
	if err := s.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(live.FieldManager)); err != nil {
		return false, fmt.Errorf("patching labels of the KsctlCluster: %w", err)
	}
	return true, nil
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster]) reconcile.Outcome {
	obj := req.Object
	names := recordedSecrets(obj)
	if reconcile.IsDeletedWithNamespace(ctx, s.Client, obj) { // so do its Secrets there
		names = slices.DeleteFunc(names, func(name types.NamespacedName) bool {
			return name.Namespace == obj.Namespace
		})
	}
	if reconcile.Abandoned(obj) {
		req.Event(corev1.EventTypeWarning, "Abandoned",
			fmt.Sprintf("Secrets %v are not deleted because of the annotation %s", names, appsv1.AbandonAnnotation))
		return reconcile.Done{Message: "the Secrets of the cluster are not deleted"}
	}
	users, err := s.cachedUsers(ctx, obj)
	if err == nil && len(users) == 0 {
		users, err = listUsers(ctx, s.Direct, target.ClusterID(obj.Namespace, obj.Name))
	}
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if s.reportUsers(obj, users); len(users) > 0 {
		// The users need an up-to-date kubeconfig until they are deleted. The outcome of its
		// reconcile is ignored: the condition Ready reports the users.
		_, _ = s.reconcileCluster(ctx, req, obj.Status.DeepCopy())
		return reconcile.Waiting{On: fmt.Sprintf("in use by %s: delete them first, because they need the kubeconfig "+
			"to remove their objects from the cluster", joinUsers(users)), For: users, Reason: clusterv1.InUseReason,
			// users in other shards cause no event
			RequeueAt: s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))}
	}
	if len(names) == 0 {
		return reconcile.Done{Message: "the cluster has no Secrets to delete"}
	}
	c, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Target, obj, s.accountOf(obj).Name)
	if err != nil {
		return s.finalizeWithoutAccount(ctx, obj, names, err)
	}
	for _, name := range names {
		err := engine.DeleteOwnedSecret(ctx, c, name, OwnerAnnotation, ownerOf(obj))
		if apierrors.IsForbidden(err) { // the role binding was deleted before the cluster
			return s.finalizeWithoutAccount(ctx, obj, names, err)
		}
		if err != nil {
			return reconcile.Retry{Err: reconcile.WithAbandonHint(err, "the Secret", obj)}
		}
	}
	return reconcile.Done{Message: "the Secrets of the cluster are deleted"}
}

// finalizeWithoutAccount finishes the deletion of a cluster without usable account if none of its
// Secrets exists any more. It deletes nothing: the controller's own permissions are not used for
// that.
func (s *Steps) finalizeWithoutAccount(ctx context.Context, obj *clusterv1.KsctlCluster, names []types.NamespacedName,
	cause error) reconcile.Outcome {
	c, err := s.Target.ClientFor(nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	for _, name := range names {
		var have corev1.Secret
		found, err := engine.GetInto(ctx, c, secretGVR, name.Namespace, name.Name, &have)
		if err != nil {
			return reconcile.Retry{Err: err}
		}
		if found && have.Annotations[OwnerAnnotation] == ownerOf(obj) {
			return reconcile.OutcomeOf(
				reconcile.WithAbandonHint(fmt.Errorf("%w: deleting Secret %s needs the permissions of the account",
					cause, name), "the Secret", obj), "")
		}
	}
	return reconcile.Done{Message: "nothing is left"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	s.objects.Drop(key)
	s.Prober.Forget(key)
}
