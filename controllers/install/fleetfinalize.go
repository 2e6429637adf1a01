package install

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Finalize deletes the member installs, each of which removes its objects.
func (f *FleetSteps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	in := req.Object
	abandoned := reconcile.Abandoned(in)
	dependents, err := f.blockingDependents(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if len(dependents) > 0 && !abandoned {
		return reconcile.Waiting{On: "dependents must be removed first: " + reconcile.JoinNames(dependents), Reason: DependentsReason}
	}
	installs, err := f.listMembers(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	r := rollout{counts: map[appsv1.ClusterState]int{}}
	var errs []error
	for i := range installs {
		x := &installs[i]
		if abandoned {
			errs = append(errs, f.abandonMember(ctx, x))
		}
		if x.DeletionTimestamp == nil {
			errs = append(errs, f.deleteMember(ctx, in, x))
		}
		r.counts[appsv1.ClusterRemoving]++
		r.clusters = append(r.clusters, clusterStatus(memberInstall{cluster: memberCluster(in, x), install: x}, appsv1.ClusterRemoving))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) { // a conflict means that the cache is stale
			return reconcile.Retry{Err: err}
		}
	}
	if in.Status.Clusters = r.clusters; len(r.clusters) > 0 {
		return reconcile.Waiting{On: fmt.Sprintf("the stack is being removed from %d clusters: %s%s", len(r.clusters), r.clustersIn(appsv1.ClusterRemoving), r.firstMessage(appsv1.ClusterRemoving)), Reason: reconcile.RemovingReason}
	}
	return reconcile.Done{Message: "the stack was removed from all clusters"}
}

// abandonMember sets the abandon annotation of a member install, so that its objects stay when it
// is deleted.
func (f *FleetSteps) abandonMember(ctx context.Context, x *appsv1.KsctlInstall) error {
	if reconcile.Abandoned(x) {
		return nil
	}
	updated := x.DeepCopy()
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	updated.Annotations[appsv1.AbandonAnnotation] = string(x.UID)
	if err := f.Client.Patch(ctx, updated, client.MergeFrom(x), client.FieldOwner(f.FieldOwner)); err != nil {
		return client.IgnoreNotFound(err)
	}
	updated.DeepCopyInto(x)
	return nil
}

// blockingDependents describes the installs that must be removed before an install for many
// clusters.
func (f *FleetSteps) blockingDependents(ctx context.Context, in *appsv1.KsctlInstall) ([]string, error) {
	var all appsv1.KsctlInstallList
	err := f.Client.List(ctx, &all, client.MatchingFields{dependsOnIndex: reconcile.IndexValue(appsv1.KsctlInstallKind, in.Namespace, in.Name)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range all.Items {
		d := &dependent{install: &all.Items[i]}
		blocks, err := f.Single.blocksRemoval(ctx, in, d.install, installDependencies)
		if err != nil {
			return nil, err
		}
		if blocks {
			out = append(out, d.describe(in.Name))
		}
	}
	slices.Sort(out)
	return out, nil
}
