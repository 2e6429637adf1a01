package bysource

import (
	"cmp"
	"context"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// clients has a client of the local cluster and one of the target cluster, both with the
// permissions of the account.
type clients struct{ local, target *engine.Client }

// clients finds the target cluster, and returns clients for it and for the local cluster.
func (s *Steps) clients(ctx context.Context, o *owner) (clients, error) {
	rm := o.req.Object
	name := cmp.Or(rm.Spec.ServiceAccountName, s.DefaultServiceAccount)
	localClient, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Targets.Local, rm, name)
	if err != nil {
		return clients{}, err
	}
	located, err := s.Targets.Resolve(ctx, target.User{Key: o.key, Spec: &rm.Spec.TargetCluster, Account: name,
		LocalClient: localClient,
		Empty:       !o.started(), Deleting: rm.DeletionTimestamp != nil, UID: rm.Status.ClusterUID,
		Requested: o.req.Requested})
	if err != nil {
		return clients{}, err
	}
	if o.target != located.Target {
		o.target = located.Target
		s.Engine.ResetBackoff(o.key) // earlier failures may be due to the previous connection
	}
	o.uid = located.UID
	return clients{local: localClient, target: located.Client}, nil
}

// orUnreachable returns out, or another outcome if the cluster does not respond. Then it also
// resets the backoffs, so that failed requests are retried as soon as the cluster responds.
func (s *Steps) orUnreachable(o *owner, out reconcile.Outcome) reconcile.Outcome {
	out, lost := s.Targets.OrUnreachable(o.target, out, o.req.Object.Status.LastAttemptedRevision)
	if lost {
		s.Engine.ResetBackoff(o.key)
	}
	return out
}

// forgetOwner drops the state of a KsctlRemove in the engine and the targets.
func (s *Steps) forgetOwner(o *owner) {
	s.Engine.Forget(o.target, o.key)
	s.Targets.Forget(o.key)
}
