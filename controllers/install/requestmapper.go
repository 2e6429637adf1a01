package install

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// registerIndexes adds the field indexes to the cache.
func (s *Setup) registerIndexes(ctx context.Context, ix client.FieldIndexer) error {
	err := ix.IndexField(ctx, &appsv1.KsctlRemove{}, removeInstallIndex, func(o client.Object) []string {
		if ref := o.(*appsv1.KsctlRemove).Spec.InstallRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing KsctlRemove: %w", err)
	}
	return reconcile.AddIndexes(ctx, ix, &appsv1.KsctlInstall{}, installIndexes(s.Steps.DefaultServiceAccount))
}

// forExternalArtifact returns a request for the install that publishes, or is going to publish, an
// ExternalArtifact.
func (s *Setup) forExternalArtifact(ctx context.Context, o client.Object) []crreconcile.Request {
	var in appsv1.KsctlInstall
	name := client.ObjectKeyFromObject(o)
	if err := s.Steps.Client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil || in.Spec.Publish == nil {
		return nil
	}
	return []crreconcile.Request{request(name)}
}

func (s *Setup) find(ctx context.Context, field, value string) []crreconcile.Request {
	return s.Reconciler.Requests(ctx, client.MatchingFields{field: value})
}

// kindDefinitions enqueues the installs that are not ready: they may wait for the kind of a
// CustomResourceDefinition or an APIService.
func (s *Setup) kindDefinitions(sources *sourceref.Watcher) handler.EventHandler {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		s.KindsChanged(o.GetName())
		if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
			sources.DefinitionChanged()
		}
		return s.find(ctx, waitingForKindIndex, "true")
	})
	// The initial list counts as one change: after its first event, discovery returns all kinds.
	var listed atomic.Bool
	create := func(ctx context.Context, e event.CreateEvent, q queue) {
		switch {
		case !e.IsInInitialList:
			h.Create(ctx, e, q)
		case !listed.Swap(true):
			s.KindsListed()
			sources.DefinitionChanged()
		}
	}
	return handler.Funcs{CreateFunc: create, UpdateFunc: h.Update, DeleteFunc: h.Delete, GenericFunc: h.Generic}
}

// enqueueNotReady enqueues the installs that are not ready, without an event.
func (s *Setup) enqueueNotReady(ctx context.Context) {
	s.queue.Add(s.find(ctx, waitingForKindIndex, "true")...)
}

// forCluster returns requests for the installs with a KsctlCluster as target, and for the installs
// of its namespace with a clusterSelector, which may match the KsctlCluster.
func (s *Setup) forCluster(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.find(ctx, clusterRefIndex, target.ClusterID(o.GetNamespace(), o.GetName()))
	return append(out, s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{clusterSelectorIndex: "true"})...)
}

// clusterChanged passes the changes of a KsctlCluster that affect installs: changes of its
// connection, of its labels, and of the fields that values are computed from.
var clusterChanged = predicate.Or(target.AccessChanged, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*clusterv1.KsctlCluster), e.ObjectNew.(*clusterv1.KsctlCluster)
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		!apiequality.Semantic.DeepEqual(before.Status.Facts, after.Status.Facts) || before.Status.KubernetesVersion != after.Status.KubernetesVersion
}})

// fleetOfMember returns a request for the fleet install of a member install.
func fleetOfMember(_ context.Context, o client.Object) []crreconcile.Request {
	name := handover.FleetName(o)
	if name == "" {
		return nil
	}
	return []crreconcile.Request{request(types.NamespacedName{Namespace: o.GetNamespace(), Name: name})}
}

// memberChanged passes the changes of a member install that affect its fleet install.
var memberChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*appsv1.KsctlInstall), e.ObjectNew.(*appsv1.KsctlInstall)
	b, a := handover.ReadyCondition(before), handover.ReadyCondition(after)
	return before.Annotations[appsv1.ReleaseAnnotation] != after.Annotations[appsv1.ReleaseAnnotation] || b.Status != a.Status || b.Message != a.Message || before.Generation != after.Generation ||
		before.Status.LastAppliedRevision != after.Status.LastAppliedRevision || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}}

// forSecret returns requests for the installs that read a Secret, and for the installs on a cluster
// whose kubeconfig is in the Secret.
func (s *Setup) forSecret(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.find(ctx, referencedConfigsIndex, reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName()))
	for _, id := range target.ClustersWithSecret(ctx, s.Steps.Client, o) {
		out = append(out, s.find(ctx, clusterRefIndex, id)...)
	}
	return out
}

// liveObjects enqueues installs when their objects change, in the local or in another cluster. It
// also enqueues the installs that the watch of dependencies and Plans report.
func (s *Setup) liveObjects(ctx context.Context, q queue) error {
	if err := s.queue.Start(ctx, q); err != nil {
		return err
	}
	s.Steps.Targets.Clusters.EnqueueOwners(ctx, s.Index, appsv1.KsctlInstallKind, q)
	wake := func(install types.NamespacedName) { q.Add(request(install)) }
	s.Steps.Dependencies.Subscribe(wake)
	s.Steps.Plans.Subscribe(wake)
	return nil
}
