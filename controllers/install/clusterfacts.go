package install

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// factReads are the paths of the variable cluster that the stack of each install reads. An install
// that is not in it may read everything: it has not rendered yet, or it renders now.
type factReads struct{ paths sync.Map } // of [][]string by types.NamespacedName

func (f *factReads) reset(install types.NamespacedName) { f.paths.Delete(install) }

func (f *factReads) record(install types.NamespacedName, paths [][]string) {
	f.paths.Store(install, paths)
}

// changed reports whether a change of a cluster may affect the render of an install.
func (f *factReads) changed(install types.NamespacedName, before, after map[string]any) bool {
	recorded, ok := f.paths.Load(install)
	paths, _ := recorded.([][]string)
	return !ok || !reflect.DeepEqual(stacks.SelectFacts(before, paths), stacks.SelectFacts(after, paths))
}

// clusterFacts returns the variable cluster for the target of an install; nil without a
// KsctlCluster. Until the paths that the stack reads are recorded, every change of the cluster
// wakes the install.
func (s *Steps) clusterFacts(ctx context.Context, in *appsv1.KsctlInstall) (map[string]any, error) {
	s.factReads.reset(client.ObjectKeyFromObject(in))
	ref := in.Spec.ClusterRef
	if ref == nil {
		return nil, nil
	}
	var c clusterv1.KsctlCluster
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: cmp.Or(ref.Namespace, in.Namespace), Name: ref.Name}, &c,
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	return stacks.ClusterVariable(&c)
}

// selectFacts returns the facts of a cluster at some paths; nil without a cluster.
func selectFacts(cluster map[string]any, paths [][]string) *stacks.ClusterFacts {
	if cluster == nil {
		return nil
	}
	return stacks.SelectFacts(cluster, paths)
}

// withFacts returns a render function that gives the stack the facts that it reads, and records
// them.
func (s *Steps) withFacts(o *owner, cluster map[string]any, render func(context.Context,
	stacks.Request) (stacks.Result, error)) func(context.Context, stacks.Request) (stacks.Result, error) {
	return func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		res, err := stacks.RenderWithFacts(ctx, req, cluster, &o.factPaths, render)
		if err == nil {
			s.factReads.record(client.ObjectKeyFromObject(o.req.Object), o.factPaths)
		}
		return res, err
	}
}

// clusterEvents enqueues the installs that a change of a KsctlCluster affects: those with a
// clusterSelector, and those on the cluster that read what has changed.
func (s *Setup) clusterEvents() handler.EventHandler {
	all := handler.EnqueueRequestsFromMapFunc(s.forCluster)
	return handler.Funcs{CreateFunc: all.Create, DeleteFunc: all.Delete, GenericFunc: all.Generic,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, err := stacks.ClusterVariable(e.ObjectOld.(*clusterv1.KsctlCluster))
			after, afterErr := stacks.ClusterVariable(e.ObjectNew.(*clusterv1.KsctlCluster))
			if err != nil || afterErr != nil || target.AccessChanged.Update(e) {
				all.Update(ctx, e, q)
				return
			}
			for _, r := range s.forCluster(ctx, e.ObjectNew) {
				if s.readsFacts(ctx, r.NamespacedName, before, after) {
					q.Add(r)
				}
			}
		}}
}

// readsFacts reports whether an install uses facts of its cluster that have changed.
func (s *Setup) readsFacts(ctx context.Context, name types.NamespacedName, before, after map[string]any) bool {
	var in appsv1.KsctlInstall
	if err := s.Steps.Client.Get(ctx, name, &in, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err) != nil
	}
	return in.Spec.ClusterSelector != nil || s.Steps.factReads.changed(name, before, after) ||
		slices.ContainsFunc(in.Spec.ValuesFrom, func(v appsv1.ValuesReference) bool {
			return v.Kind == appsv1.ClusterValues
		})
}
