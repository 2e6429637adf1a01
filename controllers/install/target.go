package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// isLocal is true for an install whose objects are in the cluster that it is in itself.
func isLocal(in *appsv1.KsctlInstall) bool { return target.OfInstall(in) == engine.LocalCluster }

// aim finds the cluster that an install is for, and returns a client of it. Here is a client
// of this cluster, with the rights of the install's account.
func (s *Steps) aim(ctx context.Context, o *owner, here *engine.Client) (*engine.Client, error) {
	in := o.req.Object
	u := target.User{Key: o.key, Spec: &in.Spec.TargetCluster, Account: s.account(in), Here: here,
		Empty: o.inv.Len() == 0, UID: in.Status.ClusterUID, Requested: o.req.Requested}
	at, err := s.Targets.Of(ctx, u)
	var other *target.OtherClusterError
	if errors.As(err, &other) && in.Annotations[appsv1.ApproveAnnotation] == other.UID {
		if err := s.giveUp(ctx, o, "they are on another cluster than "+target.People(o.key.Cluster)+" is by now"); err != nil {
			return nil, err
		}
		u.Empty = true
		at, err = s.Targets.Of(ctx, u)
	}
	if errors.As(err, &other) && in.DeletionTimestamp == nil {
		return nil, fmt.Errorf("%w; or, when that one is gone for good, give up what was there and begin anew with the annotation %s: %s", err, appsv1.ApproveAnnotation, other.UID)
	}
	if err != nil {
		return nil, err
	}
	if o.target != at.Target {
		o.target = at.Target
		s.Engine.Forgive(o.key) // what failed may not fail in this way of reaching it
	}
	o.uid = at.UID
	o.stays = func(ctx context.Context) error { return s.Targets.Stays(ctx, in.Namespace, &in.Spec.TargetCluster) }
	return at.Client, nil
}

// there returns a client of the cluster that an install is for.
func (s *Steps) there(ctx context.Context, o *owner) (*engine.Client, error) {
	here, err := s.clientFor(ctx, o.req.Object)
	if err != nil {
		return nil, err
	}
	return s.aim(ctx, o, here)
}

// orLost is an outcome, or that of the cluster having ceased to answer. What failed is tried
// again at once when it does, and time that passes meanwhile does not count.
func (s *Steps) orLost(o *owner, out reconcile.Outcome, revision string, errs ...error) (_ reconcile.Outcome, lost bool) {
	if out, lost = s.Targets.OrLost(o.target, out, revision, errs...); lost {
		s.Engine.Forgive(o.key)
		o.since, o.unsyncedSince = time.Time{}, time.Time{}
	}
	return out, lost
}

// orAbandon tells of the way out for an install that goes, where its cluster may never be
// reached again.
func orAbandon(in *appsv1.KsctlInstall, err error) error {
	return fmt.Errorf("%w; or leave what is there as it is, with the annotation %s: %s", err, appsv1.AbandonAnnotation, in.UID)
}

// leave ends what is kept of an install in memory beside the install itself.
func (s *Steps) leave(o *owner) {
	at := o.target
	if at == nil && o.key.Cluster == engine.LocalCluster {
		at = s.Targets.Local
	}
	s.Engine.Forget(at, o.key)
	s.Targets.Forget(o.key)
}
