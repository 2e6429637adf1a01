package install

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// requestMapper provides event handlers that enqueue the installs which an event affects.
type requestMapper struct {
	client client.Reader
	setup  *Setup
	queue  reconcile.Queue
}

// registerIndexes adds the field indexes to the cache.
func (w *requestMapper) registerIndexes(ctx context.Context, ix client.FieldIndexer) error {
	err := ix.IndexField(ctx, &appsv1.KsctlRemove{}, removeInstallIndex, func(o client.Object) []string {
		if ref := o.(*appsv1.KsctlRemove).Spec.InstallRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing KsctlRemove: %w", err)
	}
	return reconcile.AddIndexes(ctx, ix, &appsv1.KsctlInstall{}, installIndexes(w.setup.DefaultServiceAccount))
}

// isReady reports whether the Ready condition is True for the current generation.
func isReady(in *appsv1.KsctlInstall) bool {
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == in.Generation
		}
	}
	return false
}

// byIndex enqueues the installs that refer to an object of a kind, according to a field index.
func (w *requestMapper) byIndex(field, kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		return w.find(ctx, field, reconcile.IndexValue(kind, o.GetNamespace(), o.GetName()))
	})
}

// externalArtifacts enqueues the install that publishes, or is going to publish, an
// ExternalArtifact.
func (w *requestMapper) externalArtifacts() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		var in appsv1.KsctlInstall
		name := client.ObjectKeyFromObject(o)
		if err := w.client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil || in.Spec.Publish == nil {
			return nil
		}
		return []crreconcile.Request{request(name)}
	})
}

func (w *requestMapper) find(ctx context.Context, field, value string) []crreconcile.Request {
	return reconcile.RequestsFor(ctx, w.client, &appsv1.KsctlInstallList{}, nil, client.MatchingFields{field: value})
}

// kindDefinitions enqueues the installs that are not ready: they may wait for the kind of a
// CustomResourceDefinition or an APIService.
func (w *requestMapper) kindDefinitions(sources *sourceref.Watcher) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		w.setup.KindsChanged(o.GetName())
		if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
			sources.DefinitionChanged()
		}
		return w.find(ctx, waitingForKindIndex, "true")
	})
	// The initial list counts as one change: after its first event, discovery returns all kinds.
	var listed atomic.Bool
	create := func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
		switch {
		case !e.IsInInitialList:
			h.Create(ctx, e, q)
		case !listed.Swap(true):
			w.setup.KindsListed()
			sources.DefinitionChanged()
		}
	}
	return handler.Funcs{CreateFunc: create, UpdateFunc: h.Update, DeleteFunc: h.Delete, GenericFunc: h.Generic}
}

// enqueueNotReady enqueues the installs that are not ready, without an event.
func (w *requestMapper) enqueueNotReady(ctx context.Context) {
	w.queue.Add(w.find(ctx, waitingForKindIndex, "true")...)
}

// clusters enqueues the installs with a KsctlCluster as target, and the installs of its namespace
// with a clusterSelector, which may match the KsctlCluster.
func (w *requestMapper) clusters() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		out := w.find(ctx, clusterRefIndex, target.ClusterID(o.GetNamespace(), o.GetName()))
		return append(out, reconcile.RequestsFor(ctx, w.client, &appsv1.KsctlInstallList{}, nil, client.InNamespace(o.GetNamespace()), client.MatchingFields{clusterSelectorIndex: "true"})...)
	})
}

// clusterChanged passes the changes of a KsctlCluster that affect installs: changes of its
// connection, of its labels, and of the fields that values are computed from.
func clusterChanged() predicate.Predicate {
	known := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.KsctlCluster)
		after, is := e.ObjectNew.(*clusterv1.KsctlCluster)
		return !ok || !is || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
			!apiequality.Semantic.DeepEqual(before.Status.Facts, after.Status.Facts) || before.Status.KubernetesVersion != after.Status.KubernetesVersion
	}}
	return predicate.Or(target.AccessChanged, known)
}

// fleetName returns the name of the install that a member install belongs to. It is empty for an
// object that is not a member install.
func fleetName(o client.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != appsv1.KsctlInstallKind || !strings.HasPrefix(owner.APIVersion, appsv1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.Name
}

// fleetMembers enqueues the fleet install of a member install when the state of the member changes.
func (w *requestMapper) fleetMembers() handler.EventHandler {
	enqueue := func(o client.Object, q queue) {
		if name := fleetName(o); name != "" {
			q.Add(request(types.NamespacedName{Namespace: o.GetNamespace(), Name: name}))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
			if before.Annotations[appsv1.ReleaseAnnotation] != after.Annotations[appsv1.ReleaseAnnotation] || readyStatus(before) != readyStatus(after) || readyMessage(before) != readyMessage(after) || before.Generation != after.Generation ||
				before.Status.LastAppliedRevision != after.Status.LastAppliedRevision || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
				enqueue(after, q)
			}
		},
	}
}

// secrets enqueues the installs that read a Secret, and the installs on a cluster whose kubeconfig
// is in the Secret.
func (w *requestMapper) secrets() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		out := w.find(ctx, referencedConfigsIndex, reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName()))
		for _, id := range target.ClustersWithSecret(ctx, w.client, o) {
			out = append(out, w.find(ctx, clusterRefIndex, id)...)
		}
		return out
	})
}

// liveObjects enqueues installs when their objects change, in the local or in another cluster. It
// also enqueues the installs that the watch of dependencies and Plans report.
func (w *requestMapper) liveObjects(ctx context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	if err := w.queue.Start(ctx, queue); err != nil {
		return err
	}
	changed := func(ownerKey string) {
		k, ok := plan.ParseOwnerKey(ownerKey)
		if ok && k.Kind == appsv1.KsctlInstallKind && k.Installation == w.setup.Installation {
			queue.Add(crreconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
		}
	}
	context.AfterFunc(ctx, w.setup.Index.Subscribe(changed))
	w.setup.Clusters.Subscribe(changed)
	wake := func(install types.NamespacedName) { queue.Add(request(install)) }
	w.setup.Dependencies.Subscribe(wake)
	w.setup.Plans.Subscribe(wake)
	return nil
}
