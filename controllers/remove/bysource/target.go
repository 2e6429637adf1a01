package bysource

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// clients are one of this cluster, with the rights of the account, and one of the cluster
// that is named.
type clients struct{ here, there *engine.Client }

// clients finds the cluster that a KsctlRemove is for.
func (s *Steps) clients(ctx context.Context, o *owner) (clients, error) {
	rm := o.req.Object
	name := cmp.Or(rm.Spec.ServiceAccountName, s.DefaultServiceAccount)
	here, err := account.Client(ctx, s.Client, s.Targets.Local, types.NamespacedName{Namespace: rm.Namespace, Name: name})
	if err != nil {
		return clients{}, err
	}
	at, err := s.Targets.Of(ctx, target.User{Key: o.key, Spec: &rm.Spec.TargetCluster, Account: name, Here: here,
		Empty: !o.begun(), UID: rm.Status.ClusterUID, Requested: o.req.Requested})
	if err != nil {
		return clients{}, err
	}
	if o.target != at.Target {
		o.target = at.Target
		s.Engine.Forgive(o.key) // what failed may not fail in this way of reaching it
	}
	o.uid = at.UID
	return clients{here: here, there: at.Client}, nil
}

// orLost is an outcome, or that of the cluster having ceased to answer: what failed is tried
// again at once when it does.
func (s *Steps) orLost(o *owner, out reconcile.Outcome) reconcile.Outcome {
	out, lost := s.Targets.OrLost(o.target, out, o.req.Object.Status.LastAttemptedRevision)
	if lost {
		s.Engine.Forgive(o.key)
	}
	return out
}

// leave ends what is kept of a KsctlRemove in memory beside it.
func (s *Steps) leave(o *owner) {
	s.Engine.Forget(o.target, o.key)
	s.Targets.Forget(o.key)
}
