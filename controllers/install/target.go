package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// resolveTarget resolves the target cluster of an install, and returns a client of it. localClient
// is a client of the local cluster that impersonates the install's service account.
func (s *Steps) resolveTarget(ctx context.Context, o *owner, localClient *engine.Client) (*engine.Client, error) {
	in := o.req.Object
	u := target.User{Key: o.key, Spec: &in.Spec.TargetCluster, Account: s.serviceAccountName(in),
		LocalClient: localClient,
		Empty:       o.inv.Len() == 0, Deleting: in.DeletionTimestamp != nil, UID: in.Status.ClusterUID,
		Requested: o.req.Requested}
	resolved, err := s.Targets.Resolve(ctx, u)
	var mismatch *target.ClusterMismatchError
	if errors.As(err, &mismatch) && in.Annotations[appsv1.ApproveAnnotation] == mismatch.UID {
		if err := s.abandonInventory(ctx, o, target.DisplayName(o.key.Cluster)+
			" now refers to another cluster"); err != nil {
			return nil, err
		}
		u.Empty = true
		resolved, err = s.Targets.Resolve(ctx, u)
	}
	if errors.As(err, &mismatch) && in.DeletionTimestamp == nil {
		return nil, fmt.Errorf("%w; or, if the original cluster is gone for good, abandon its objects and install "+
			"again with the annotation %s: %s", err, appsv1.ApproveAnnotation, mismatch.UID)
	}
	if err != nil {
		return nil, err
	}
	if o.target != resolved.Target {
		o.target = resolved.Target
		s.Engine.ResetBackoff(o.key) // failed requests may succeed over the new connection
	}
	o.uid = resolved.UID
	o.ensureCluster = func(ctx context.Context) error {
		return s.Targets.EnsureNotDeleting(ctx, in.Namespace, &in.Spec.TargetCluster)
	}
	return resolved.Client, nil
}

// mayReceive implements engine.Pass.MayReceive: the service account of the install that claims an
// object must be allowed to patch it. In another cluster the permissions are those of the
// kubeconfig.
func (s *Steps) mayReceive(o *owner) func(context.Context, plan.OwnerKey, schema.GroupVersionResource,
	stacks.Ref) (bool, error) {
	return func(ctx context.Context, to plan.OwnerKey, r schema.GroupVersionResource, ref stacks.Ref) (bool, error) {
		if o.key.Cluster != plan.LocalCluster {
			return true, nil
		}
		claimant := types.NamespacedName{Namespace: to.Namespace, Name: to.Name}
		may, err := s.mayPatch(ctx, o.req.Object, claimant, r, ref)
		if err == nil && !may {
			o.handover.Deny(ref.ID(), claimant)
		}
		return may, err
	}
}

// isActive implements engine.Pass.IsActive. It reads from the API server, because the cache may not
// know yet that an install is being deleted.
func (s *Steps) isActive(o *owner) func(context.Context, plan.OwnerKey, stacks.Ref) (bool, error) {
	return func(ctx context.Context, to plan.OwnerKey, ref stacks.Ref) (bool, error) {
		claimant := types.NamespacedName{Namespace: to.Namespace, Name: to.Name}
		in := reconcile.PartialMetadata(appsv1.GroupVersion.Group, appsv1.KsctlInstallKind)
		err := s.Targets.Direct.Get(ctx, claimant, in)
		if err == nil && in.DeletionTimestamp == nil {
			return true, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return false, err
		}
		o.handover.Deny(ref.ID(), claimant)
		return false, nil
	}
}

func (s *Steps) mayPatch(ctx context.Context, from *appsv1.KsctlInstall, claimant types.NamespacedName,
	r schema.GroupVersionResource, ref stacks.Ref) (bool, error) {
	var in appsv1.KsctlInstall
	if err := s.Client.Get(ctx, claimant, &in, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if in.Namespace == from.Namespace && s.serviceAccountName(&in) == s.serviceAccountName(from) {
		return true, nil
	}
	c, err := s.clientFor(ctx, &in)
	var missing *reconcile.StepError
	if errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return c.MayPatch(ctx, r, ref)
}

// orClusterLost returns out, or another outcome if the target cluster does not respond anymore;
// lost is true then. Failed operations are retried as soon as the cluster responds, and the time
// until then does not count against timeouts.
func (s *Steps) orClusterLost(o *owner, out reconcile.Outcome, revision string,
	errs ...error) (_ reconcile.Outcome, lost bool) {
	if out, lost = s.Targets.OrUnreachable(o.target, out, revision, errs...); lost {
		s.Engine.ResetBackoff(o.key)
		o.waitingSince, o.unsyncedSince = time.Time{}, time.Time{}
	}
	return out, lost
}

// withAbandonHint adds to an error how to complete a removal if the cluster may never be reachable
// again.
func withAbandonHint(in *appsv1.KsctlInstall, err error) error {
	return fmt.Errorf("%w; or abandon the installed objects with the annotation %s: %s", err, appsv1.AbandonAnnotation,
		in.UID)
}

// forgetOwner drops the in-memory state of an install in the engine and in Targets.
func (s *Steps) forgetOwner(o *owner) {
	cluster := o.target
	if cluster == nil && o.key.Cluster == plan.LocalCluster {
		cluster = s.Targets.Local
	}
	s.Engine.Forget(cluster, o.key)
	s.Targets.Forget(o.key)
}
