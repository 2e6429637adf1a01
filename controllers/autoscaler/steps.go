package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlAutoScaler"

// Steps reconcile a KsctlAutoScaler.
type Steps struct {
	// Client reads from the cache, and writes KsctlInstalls.
	Client client.Client
	// Targets finds the cluster, and Local is the one that the objects are in.
	Targets *target.Targets
	Local   *engine.Target
	// Installation is the controller's --owner-id.
	Installation string
	// DefaultServiceAccount is used where an object names none; empty: it is refused.
	DefaultServiceAccount string
	FieldOwner            string

	Watches *Watches
	Links   *Links
	// Published is what Cluster Autoscaler is answered.
	Published *nodegroup.Clusters
	// Provider is where it is served.
	Provider *Provider
	Clock    clock.WithTicker
	// Selector restricts the objects that are reconciled here; nil: all are.
	Selector labels.Selector
	// Scaled is told of each operation that ended: of which pool, what it did, and how it ended; nil: nobody is.
	Scaled func(key types.NamespacedName, pool, operation, result string)

	board  board
	vigils vigils
}

var _ reconcile.Steps[*clusterv1.KsctlAutoScaler] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler]) reconcile.Outcome {
	obj := req.Object
	timeout := reconcile.Timeout(&obj.Spec.Schedule)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
	defer cancel()
	if err := cmp.Or(s.accept(ctx, obj), validate(obj.Spec.Pools), inOrder(&obj.Spec)); err != nil {
		s.silence(obj, err)
		accepted(obj, err, s.Clock.Now())
		return outcome(err)
	}
	here, err := account.Client(ctx, s.Client, s.Local, s.account(obj))
	if err != nil {
		s.silence(obj, err)
		return account.Outcome(err, "")
	}
	seen, err := s.observe(ctx, req, here)
	if err != nil {
		s.silence(obj, err)
		return outcome(err)
	}
	p, granted := s.plan(obj, seen)
	if err := s.record(ctx, req, seen, p, granted); err != nil {
		return reconcile.Retry{Err: err}
	}
	failed := s.mark(ctx, obj, seen, p)
	runs, err := s.run(ctx, obj, here, seen)
	if err != nil {
		return outcome(err)
	}
	out := s.conclude(obj, seen, p, runs)
	if failed != nil {
		out = s.orLost(seen, reconcile.Retry{Err: failed})
	}
	return out
}

// account whose rights are used.
func (s *Steps) account(obj *clusterv1.KsctlAutoScaler) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.Namespace, Name: cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)}
}

// key is that of the user of the cluster.
func (s *Steps) key(obj *clusterv1.KsctlAutoScaler) engine.OwnerKey {
	return engine.OwnerKey{Installation: s.Installation, Cluster: target.ClusterID(obj.Namespace, obj.Spec.ClusterRef.Name), Kind: Kind, Namespace: obj.Namespace, Name: obj.Name}
}

// accept refuses all but the first that names a cluster.
func (s *Steps) accept(ctx context.Context, obj *clusterv1.KsctlAutoScaler) error {
	var all clusterv1.KsctlAutoScalerList
	err := s.Client.List(ctx, &all, client.InNamespace(obj.Namespace), client.MatchingFields{byCluster: obj.Spec.ClusterRef.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	for i := range all.Items {
		if x := &all.Items[i]; x.UID != obj.UID && before(x, obj) {
			return reconcile.Fail(ConflictReason, "KsctlCluster %s scales by KsctlAutoScaler %s already: put the pools there, and delete this one", obj.Spec.ClusterRef.Name, x.Name)
		}
	}
	return nil
}

// inOrder refuses an order that no agent keeps to.
func inOrder(spec *clusterv1.KsctlAutoScalerSpec) error {
	if spec.ScaleDown != nil && spec.ScaleDown.Order == clusterv1.AnyOrder {
		return reconcile.Fail(OrderReason, "spec.scaleDown.order: Any needs an agent that deletes machines by name, and neither ksctl's own nor ours does: leave it out, or make it Tail")
	}
	return nil
}

// before is true for the older of two, by which the cluster scales.
func before(a, b *clusterv1.KsctlAutoScaler) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// mode that is in force.
func mode(obj *clusterv1.KsctlAutoScaler) clusterv1.ScalingMode {
	if obj.Spec.Suspend || obj.DeletionTimestamp != nil {
		return clusterv1.ScalingOff
	}
	return cmp.Or(obj.Spec.Mode, clusterv1.ScalingAuto)
}

// plan is what becomes of the pools, and who waits for it to be on record.
func (s *Steps) plan(obj *clusterv1.KsctlAutoScaler, seen *sight) (*plan, []*request) {
	f := facts{mode: mode(obj), spec: &obj.Spec, status: &obj.Status, fleet: &seen.fleet, word: seen.word, plain: seen.plain, counted: seen.counted, late: seen.late, within: joinWithin(&obj.Spec), uid: string(obj.UID), now: s.Clock.Now()}
	p := newPlan(f)
	if p.doubt != nil && f.now.Before(p.doubt.until) {
		seen.soonest(p.doubt.until)
	}
	granted := s.hear(obj, seen, p)
	p.choose(f)
	return p, granted
}

// record writes down what is to be done, says so to Cluster Autoscaler, and has it done.
func (s *Steps) record(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler], seen *sight, p *plan, granted []*request) error {
	obj, before := req.Object, req.Object.Status.DeepCopy()
	begun := atWork(p.op) && p.op.State == clusterv1.OperationPending && (before.Operation == nil || before.Operation.ID != p.op.ID)
	p.report(obj, seen)
	backoffs := p.newBackoffs(before, s.Clock.Now())
	if begun || p.ended != nil || len(p.cancelled) > 0 || len(granted) > 0 || len(backoffs) > 0 {
		if err := req.Persist(ctx, ""); err != nil {
			before.DeepCopyInto(&obj.Status) // what was refused is not written down later, either
			answerAll(granted, unready(err))
			return err
		}
	}
	err := s.publish(ctx, obj, seen, p)
	answerAll(granted, err)
	if err != nil {
		return err
	}
	s.tell(req, p, begun)
	s.count(obj, p)
	tellBackoffs(req, backoffs)
	s.Links.carry(client.ObjectKeyFromObject(obj), p.op, begun)
	return nil
}

// mark puts on nodes what they have because of their pools, and deletes those whose machines are gone.
func (s *Steps) mark(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *sight, p *plan) error {
	now := s.Clock.Now()
	mayGo := func(m *machine) bool {
		return mode(obj) == clusterv1.ScalingAuto && !backsOff(p.backoffs[m.pool], clusterv1.OperationScaleDown, now)
	}
	released, due := p.released(&seen.fleet, askTime(&obj.Spec), now)
	seen.soonest(due)
	err := put(ctx, seen.client, marks(&seen.fleet, obj.Spec.Pools, mayGo, released))
	if atWork(p.op) || seen.agentErr != nil { // what is a machine of whom is not known
		return err
	}
	nodes, next := gone(seen.fleet.strays, now)
	seen.soonest(next)
	return errors.Join(err, sweep(ctx, seen.client, nodes))
}

// tell records what has happened.
func (s *Steps) tell(req *reconcile.Request[*clusterv1.KsctlAutoScaler], p *plan, begun bool) {
	for _, what := range p.cancelled {
		req.Event(corev1.EventTypeNormal, "ScaleCancelled", what)
	}
	if op := p.ended; op != nil && op.State == clusterv1.OperationFailed {
		req.Event(corev1.EventTypeWarning, string(op.Kind)+"Failed", describe(op)+": "+op.Message)
	} else if op != nil {
		req.Event(corev1.EventTypeNormal, string(op.Kind)+"Done", describe(op))
	}
	if begun {
		req.Event(corev1.EventTypeNormal, string(p.op.Kind), describe(p.op))
	}
}

// orLost is an outcome, or that of the cluster having ceased to answer.
func (s *Steps) orLost(seen *sight, out reconcile.Outcome) reconcile.Outcome {
	out, _ = s.Targets.OrLost(seen.target, out, "")
	return out
}

// Finalize implements reconcile.Steps. What has begun goes on without us.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler]) reconcile.Outcome {
	obj := req.Object
	if a := obj.Annotations[appsv1.AbandonAnnotation]; a != "" && a == string(obj.UID) {
		req.Event(corev1.EventTypeWarning, "Abandoned", "left behind, because of the annotation "+appsv1.AbandonAnnotation+": marks on nodes, and the Secret by which Cluster Autoscaler is known")
		return reconcile.Done{Message: "left behind"}
	}
	s.silence(obj, errGoing)
	s.Links.carry(client.ObjectKeyFromObject(obj), nil, false)
	left, err := s.uninstall(ctx, obj)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if left != "" {
		return reconcile.Waiting{On: left + ", which goes first", Until: s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))}
	}
	here, err := account.Client(ctx, s.Client, s.Local, s.account(obj))
	if err != nil {
		return account.Outcome(fmt.Errorf("%w; or leave what there is, with the annotation %s: %s", err, appsv1.AbandonAnnotation, obj.UID), "")
	}
	if err := engine.DropSecret(ctx, here, tlsSecret(obj), OfAnnotation, of(obj)); err != nil && !apierrors.IsForbidden(err) {
		return reconcile.Retry{Err: err}
	}
	if err := s.release(ctx, req, here); err != nil {
		return outcome(fmt.Errorf("%w; or leave the marks on its nodes, with the annotation %s: %s", err, appsv1.AbandonAnnotation, obj.UID))
	}
	return reconcile.Done{Message: "Cluster Autoscaler is removed; the machines stay as they are"}
}

// release takes off the cluster's nodes what keeps them from a Cluster Autoscaler, where there
// still is a way to it.
func (s *Steps) release(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler], here *engine.Client) error {
	seen, err := s.reach(ctx, req, here)
	var gone *target.Error
	if errors.As(err, &gone) {
		return nil // nobody knows the way any more
	}
	if err != nil {
		return err
	}
	return unmark(ctx, seen.client, seen.nodes, seen.hosts)
}

// Forget implements reconcile.Steps. An object whose status somebody else changed is still there,
// and ours: what its agent is at goes on.
func (s *Steps) Forget(key types.NamespacedName) {
	var obj clusterv1.KsctlAutoScaler
	err := s.Client.Get(context.Background(), key, &obj)
	if err == nil && obj.DeletionTimestamp == nil && (s.Selector == nil || s.Selector.Matches(labels.Set(obj.Labels))) && s.board.is(key, obj.UID) {
		return
	}
	s.Published.Drop(key)
	s.Watches.Forget(key)
	s.Links.Forget(key)
	s.vigils.forget(key)
	if user := s.board.forget(key); user.Name != "" {
		s.Targets.Forget(user)
	}
}

// silence has Cluster Autoscaler wait: nothing can be said of the cluster now.
func (s *Steps) silence(obj *clusterv1.KsctlAutoScaler, why error) {
	s.board.silence(s.Published, client.ObjectKeyFromObject(obj), why)
}

func of(obj *clusterv1.KsctlAutoScaler) string { return obj.Namespace + "/" + obj.Name }
