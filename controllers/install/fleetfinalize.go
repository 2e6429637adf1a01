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

// Finalize removes the installs for clusters, each of which removes what it installed.
func (f *Fleets) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	in := req.Object
	a := in.Annotations[appsv1.AbandonAnnotation]
	abandoned := a != "" && a == string(in.UID)
	before, err := f.dependents(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if len(before) > 0 && !abandoned {
		return reconcile.Waiting{On: "these depend on it and go first: " + list(before), Reason: DependentsReason}
	}
	installs, err := f.made(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	r := rollout{counts: map[appsv1.ClusterState]int{}}
	var errs []error
	for i := range installs {
		x := &installs[i]
		if abandoned {
			errs = append(errs, f.abandon(ctx, x))
		}
		if x.DeletionTimestamp == nil {
			errs = append(errs, f.remove(ctx, in, x))
		}
		r.counts[appsv1.ClusterRemoving]++
		r.lines = append(r.lines, lineOf(site{cluster: clusterOfSite(in, x), install: x}, appsv1.ClusterRemoving))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) { // the cache is behind
			return reconcile.Retry{Err: err}
		}
	}
	if in.Status.Clusters = r.lines; len(r.lines) > 0 {
		return reconcile.Waiting{On: fmt.Sprintf("%d clusters are being cleared: %s%s", len(r.lines), r.named(appsv1.ClusterRemoving), r.first(appsv1.ClusterRemoving)), Reason: reconcile.RemovingReason}
	}
	return reconcile.Done{Message: "all clusters were cleared"}
}

// abandon has an install leave what it has as it is.
func (f *Fleets) abandon(ctx context.Context, x *appsv1.KsctlInstall) error {
	if x.Annotations[appsv1.AbandonAnnotation] == string(x.UID) {
		return nil
	}
	left := x.DeepCopy()
	if left.Annotations == nil {
		left.Annotations = map[string]string{}
	}
	left.Annotations[appsv1.AbandonAnnotation] = string(x.UID)
	if err := f.Client.Patch(ctx, left, client.MergeFrom(x), client.FieldOwner(f.FieldOwner)); err != nil {
		return client.IgnoreNotFound(err)
	}
	left.DeepCopyInto(x)
	return nil
}

// dependents are those that go first.
func (f *Fleets) dependents(ctx context.Context, in *appsv1.KsctlInstall) ([]string, error) {
	var all appsv1.KsctlInstallList
	err := f.Client.List(ctx, &all, client.MatchingFields{byDependency: reconcile.FieldValue(Kind, in.Namespace, in.Name)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range all.Items {
		d := &dependent{install: &all.Items[i]}
		waited, err := f.One.waitedFor(ctx, in, d.install, dependencyNames)
		if err != nil {
			return nil, err
		}
		if waited {
			out = append(out, d.words(in.Name))
		}
	}
	slices.Sort(out)
	return out, nil
}
