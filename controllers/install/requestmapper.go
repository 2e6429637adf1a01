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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// wakes finds the installs that an event concerns.
type wakes struct {
	client client.Reader
	setup  *Setup
	queue  reconcile.Queue
}

func (w *wakes) index(ctx context.Context, ix client.FieldIndexer) error {
	err := ix.IndexField(ctx, &appsv1.KsctlRemove{}, byInstallRef, func(o client.Object) []string {
		if ref := o.(*appsv1.KsctlRemove).Spec.InstallRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index of KsctlRemove: %w", err)
	}
	for field, values := range fields(w.setup.DefaultServiceAccount) {
		err := ix.IndexField(ctx, &appsv1.KsctlInstall{}, field, func(o client.Object) []string {
			return values(o.(*appsv1.KsctlInstall))
		})
		if err != nil {
			return fmt.Errorf("index %q of %s: %w", field, Kind, err)
		}
	}
	return nil
}

func isReady(in *appsv1.KsctlInstall) bool {
	for _, c := range in.Status.Conditions {
		if c.Type == appsv1.ReadyCondition {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == in.Generation
		}
	}
	return false
}

// installs wakes the installs whose field names an object of a kind.
func (w *wakes) installs(field, kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		return w.find(ctx, field, reconcile.FieldValue(kind, o.GetNamespace(), o.GetName()))
	})
}

// published wakes the install that an ExternalArtifact is of, or would be.
func (w *wakes) published() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		var in appsv1.KsctlInstall
		name := client.ObjectKeyFromObject(o)
		if err := w.client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil || in.Spec.Publish == nil {
			return nil
		}
		return []crreconcile.Request{request(name)}
	})
}

func (w *wakes) find(ctx context.Context, field, value string) []crreconcile.Request {
	return reconcile.Find(ctx, w.client, &appsv1.KsctlInstallList{}, nil, client.MatchingFields{field: value})
}

// unserved wakes the installs that are not ready: one may wait for the kind
// that a CustomResourceDefinition or an APIService brought.
func (w *wakes) unserved(sources *sourceref.Watches) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		w.setup.KindsChanged(o.GetName())
		if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
			sources.Changed()
		}
		return w.find(ctx, byUnserved, "true")
	})
	// What was there at the start is one change: who asks after the first of them
	// is told of all.
	var listed atomic.Bool
	create := func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
		switch {
		case !e.IsInInitialList:
			h.Create(ctx, e, q)
		case !listed.Swap(true):
			w.setup.KindsListed()
			sources.Changed()
		}
	}
	return handler.Funcs{CreateFunc: create, UpdateFunc: h.Update, DeleteFunc: h.Delete, GenericFunc: h.Generic}
}

// wakeUnready wakes the installs that are not ready without an event.
func (w *wakes) wakeUnready(ctx context.Context) {
	w.queue.Add(w.find(ctx, byUnserved, "true")...)
}

// clusters wakes the installs for a KsctlCluster, and those that may pick it.
func (w *wakes) clusters() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		out := w.find(ctx, byCluster, target.ClusterID(o.GetNamespace(), o.GetName()))
		return append(out, reconcile.Find(ctx, w.client, &appsv1.KsctlInstallList{}, nil, client.InNamespace(o.GetNamespace()), client.MatchingFields{selecting: "true"})...)
	})
}

// otherCluster lets the changes of a KsctlCluster through that installs care for: how it is
// reached, whether it is picked, and what values are taken from.
func otherCluster() predicate.Predicate {
	known := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.KsctlCluster)
		after, is := e.ObjectNew.(*clusterv1.KsctlCluster)
		return !ok || !is || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
			!apiequality.Semantic.DeepEqual(before.Status.Facts, after.Status.Facts) || before.Status.KubernetesVersion != after.Status.KubernetesVersion
	}}
	return predicate.Or(target.Moved, known)
}

// fleetOf names the install that made one for a cluster; "": none did.
func fleetOf(o client.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != Kind || !strings.HasPrefix(owner.APIVersion, appsv1.GroupVersion.Group+"/") {
		return ""
	}
	return owner.Name
}

// fleets wakes the install that made one for a cluster, when that stands otherwise.
func (w *wakes) fleets() handler.EventHandler {
	made := func(o client.Object, q queue) {
		if name := fleetOf(o); name != "" {
			q.Add(request(types.NamespacedName{Namespace: o.GetNamespace(), Name: name}))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { made(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { made(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
			if before.Annotations[appsv1.ReleaseAnnotation] != after.Annotations[appsv1.ReleaseAnnotation] || readyStatus(before) != readyStatus(after) || readyMessage(before) != readyMessage(after) || before.Generation != after.Generation ||
				before.Status.LastAppliedRevision != after.Status.LastAppliedRevision || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
				made(after, q)
			}
		},
	}
}

// secrets wakes the installs that read a Secret, and those for a cluster whose kubeconfig it has.
func (w *wakes) secrets() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		out := w.find(ctx, byValues, reconcile.FieldValue("Secret", o.GetNamespace(), o.GetName()))
		for _, id := range target.WithSecret(ctx, w.client, o) {
			out = append(out, w.find(ctx, byCluster, id)...)
		}
		return out
	})
}

// liveObjects wakes the owner of objects that changed, here or in another cluster.
func (w *wakes) liveObjects(ctx context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	if err := w.queue.Start(ctx, queue); err != nil {
		return err
	}
	changed := func(ownerKey string) {
		k, ok := engine.ParseOwnerKey(ownerKey)
		if ok && k.Kind == Kind && k.Installation == w.setup.Installation {
			queue.Add(crreconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
		}
	}
	context.AfterFunc(ctx, w.setup.Index.Subscribe(changed))
	w.setup.Clusters.Subscribe(changed)
	wake := func(install types.NamespacedName) { queue.Add(request(install)) }
	w.setup.Depends.Subscribe(wake)
	w.setup.Plans.Subscribe(wake)
	return nil
}
