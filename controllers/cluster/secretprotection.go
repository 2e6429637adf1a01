package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// secretProtection keeps a finalizer on each Secret whose kubeconfig is in use. Otherwise, nothing
// could be removed from a cluster after the namespace with its Secret was deleted.
type secretProtection struct {
	// client reads from the cache, and writes finalizers. direct reads from the API server.
	client client.Client
	direct client.Reader
}

// register adds the controller to a manager, after the field indexes.
func (p *secretProtection) register(mgr ctrl.Manager, options controller.Options) error {
	secretsOf := handler.EnqueueRequestsFromMapFunc(p.secretRequests)
	usersChanged := builder.WithPredicates(clusterChanged)
	reconciler := reconcile.Func(p.reconcile)
	return reconciler.NewBuilder(mgr, "kubeconfigsecret", options).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), &handler.EnqueueRequestForObject{},
			builder.WithPredicates(deletionChanged)).
		Watches(&clusterv1.KsctlCluster{}, secretsOf, builder.WithPredicates(kubeconfigSecretChanged)).
		Watches(&appsv1.KsctlInstall{}, secretsOf, usersChanged).
		Watches(&appsv1.KsctlRemove{}, secretsOf, usersChanged).
		Watches(&clusterv1.KsctlAutoScaler{}, secretsOf, usersChanged).
		Complete(reconciler)
}

// secretRequests returns the request for the Secret of a KsctlCluster, or of the cluster that
// another object uses.
func (p *secretProtection) secretRequests(ctx context.Context, o client.Object) []crreconcile.Request {
	c, isCluster := o.(*clusterv1.KsctlCluster)
	if !isCluster {
		if namespace, name, ok := target.ParseSecretID(clusterOf(o)); ok {
			return []crreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
		}
		requests := clusterRequests(ctx, o)
		c = &clusterv1.KsctlCluster{}
		if len(requests) == 0 || p.client.Get(ctx, requests[0].NamespacedName, c, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
	}
	return []crreconcile.Request{{NamespacedName: kubeconfigSecret(c)}}
}

// deletionChanged accepts updates that change whether a Secret is being deleted, or its finalizers.
var deletionChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
		!slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
}}

// kubeconfigSecretChanged accepts updates of a KsctlCluster that change the name of its Secret.
var kubeconfigSecretChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*clusterv1.KsctlCluster), e.ObjectNew.(*clusterv1.KsctlCluster)
	return kubeconfigSecret(before) != kubeconfigSecret(after)
}}

// reconcile adds the finalizer of a Secret, or removes it.
func (p *secretProtection) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	secret := reconcile.PartialMetadata("", "Secret")
	err := p.client.Get(ctx, key, secret, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) { // the cache may be restricted to Secrets with certain labels
		err = p.direct.Get(ctx, key, secret)
	}
	if err != nil {
		return 0, err
	}
	isProtected := controllerutil.ContainsFinalizer(secret, appsv1.Finalizer)
	inUse, err := p.isInUse(ctx, key, func(cluster string) ([]appsv1.WaitReference, error) {
		return cachedUsers(ctx, p.client, cluster)
	})
	if err == nil && !inUse && isProtected { // before it is released: the cache may be late, or of another shard
		inUse, err = p.isInUse(ctx, key, func(cluster string) ([]appsv1.WaitReference, error) {
			return listUsers(ctx, p.direct, cluster)
		})
	}
	if err != nil || inUse == isProtected || inUse && secret.DeletionTimestamp != nil {
		return 0, err
	}
	return 0, p.setProtected(ctx, secret, inUse)
}

// isInUse reports whether a user has objects on the cluster of a Secret's kubeconfig: by the
// Secret, or by a KsctlCluster.
func (p *secretProtection) isInUse(ctx context.Context, secret types.NamespacedName,
	usersOf func(cluster string) ([]appsv1.WaitReference, error)) (bool, error) {
	var clusters clusterv1.KsctlClusterList
	if err := p.client.List(ctx, &clusters,
		client.MatchingFields{bySecret: reconcile.IndexValue("Secret", secret.Namespace, secret.Name)},
		client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	ids := []string{target.SecretID(secret.Namespace, secret.Name)}
	for i := range clusters.Items {
		if kubeconfigSecret(&clusters.Items[i]) == secret {
			ids = append(ids, target.ClusterID(secret.Namespace, clusters.Items[i].Name))
		}
	}
	for _, id := range ids {
		if users, err := usersOf(id); err != nil || len(users) > 0 {
			return true, err
		}
	}
	return false, nil
}

// setProtected adds or removes the finalizer. The write fails with a conflict if the Secret changes
// before.
func (p *secretProtection) setProtected(ctx context.Context, secret *metav1.PartialObjectMetadata,
	protected bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(secret.Finalizers), func(f string) bool {
		return f == appsv1.Finalizer
	})
	if protected {
		finalizers = append(finalizers, appsv1.Finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": secret.ResourceVersion,
		"uid": secret.UID, "finalizers": finalizers}})
	if err != nil {
		return err
	}
	stored := reconcile.PartialMetadata("", "Secret")
	stored.Namespace, stored.Name = secret.Namespace, secret.Name
	return p.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(live.FieldManager))
}

// kubeconfigSecret returns the Secret with the kubeconfig of a cluster.
func kubeconfigSecret(c *clusterv1.KsctlCluster) types.NamespacedName {
	if ref := c.Spec.KubeConfigRef; ref != nil {
		return types.NamespacedName{Namespace: c.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name + secretSuffix}
}
