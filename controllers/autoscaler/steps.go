package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// Steps reconcile a KsctlAutoScaler.
type Steps struct {
	// Client reads from the cache, and writes KsctlInstalls.
	Client client.Client
	// Targets resolves the target cluster. Local is the cluster that the KsctlAutoScalers are in.
	Targets *target.Resolver
	Local   *engine.Target
	// Installation is the value of the controller's flag --owner-id.
	Installation string
	// DefaultServiceAccount is used if the spec names no service account; empty: such an object
	// is Stalled.
	DefaultServiceAccount string
	FieldOwner            string

	NodeWatches   *NodeWatches
	AgentSessions *session.Sessions
	// Published holds the state that is served to Cluster Autoscalers.
	Published *nodegroup.Clusters
	// Certificates has the address and the certificates of the node group server.
	Certificates *Certificates
	Clock        clock.WithTicker
	// Selector selects the objects to reconcile; nil selects all.
	Selector labels.Selector
	// OperationEnded is called for each operation that ended, with its pool, its kind and its
	// result ("Succeeded" or a failure code). It may be nil.
	OperationEnded func(key types.NamespacedName, pool, operation, result string)

	// enqueue triggers a reconcile of an object.
	enqueue func(types.NamespacedName)
	state   state
}

var _ reconcile.Steps[*clusterv1.KsctlAutoScaler] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler]) reconcile.Outcome {
	obj := req.Object
	ctx, cancel := reconcile.WithTimeout(ctx, &obj.Spec.Schedule)
	defer cancel()
	if err := cmp.Or(s.checkConflict(ctx, obj), validatePools(obj.Spec.Pools), validateOrder(&obj.Spec)); err != nil {
		s.pausePolling(obj, err)
		setConditions(obj, s.Clock.Now(), acceptedCondition(obj, err))
		return target.Outcome(err, "")
	}
	localClient, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Local, obj, s.account(obj))
	if err != nil {
		s.pausePolling(obj, err)
		return reconcile.OutcomeOf(err, "")
	}
	seen, err := s.observe(ctx, req, localClient)
	if err != nil {
		s.pausePolling(obj, err)
		return target.Outcome(err, "")
	}
	p, granted := s.plan(obj, seen)
	if err := s.record(ctx, req, seen, p, granted); err != nil {
		return reconcile.Retry{Err: err}
	}
	failed := s.updateNodes(ctx, obj, seen, p)
	health, err := s.installAutoscaler(ctx, obj, localClient, seen)
	if err != nil {
		return target.Outcome(err, "")
	}
	s.checkPolling(obj, &health)
	out := s.conclude(obj, seen, p, health)
	if failed != nil {
		out, _ = s.Targets.OrUnreachable(seen.target, reconcile.Retry{Err: failed}, "")
	}
	return out
}

// account returns the name of the service account whose permissions are used.
func (s *Steps) account(obj *clusterv1.KsctlAutoScaler) string {
	return cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)
}

// ownerKey returns the key of the object as a user of its target cluster.
func (s *Steps) ownerKey(obj *clusterv1.KsctlAutoScaler) plan.OwnerKey {
	return plan.OwnerKey{Installation: s.Installation,
		Cluster: target.ClusterID(obj.Namespace, obj.Spec.ClusterRef.Name), Kind: clusterv1.KsctlAutoScalerKind,
		Namespace: obj.Namespace, Name: obj.Name}
}

// checkConflict returns an error unless the object is the oldest one that names its cluster.
func (s *Steps) checkConflict(ctx context.Context, obj *clusterv1.KsctlAutoScaler) error {
	var all clusterv1.KsctlAutoScalerList
	err := s.Client.List(ctx, &all, client.InNamespace(obj.Namespace),
		client.MatchingFields{clusterIndex: obj.Spec.ClusterRef.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	for i := range all.Items {
		if x := &all.Items[i]; x.UID != obj.UID && precedes(x, obj) {
			return reconcile.NewTerminalError(clusterv1.ConflictReason,
				"KsctlCluster %s is already scaled by KsctlAutoScaler %s: move the pools there, and delete this "+
					"KsctlAutoScaler", obj.Spec.ClusterRef.Name, x.Name)
		}
	}
	return nil
}

// validateOrder returns an error for a scale-down order that no agent supports.
func validateOrder(spec *clusterv1.KsctlAutoScalerSpec) error {
	if spec.ScaleDown != nil && spec.ScaleDown.Order == clusterv1.AnyOrder {
		return reconcile.NewTerminalError(clusterv1.OrderNotSupportedReason,
			"spec.scaleDown.order: Any is not supported: it needs an agent that deletes machines by name, and no "+
				"agent does; omit the field or set it to Tail")
	}
	return nil
}

// precedes reports whether a was created before b. The oldest KsctlAutoScaler scales the cluster.
func precedes(a, b metav1.Object) bool {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if x.Equal(&y) {
		return a.GetName() < b.GetName()
	}
	return x.Before(&y)
}

// effectiveMode returns the scaling mode: Off while the object is suspended or being deleted.
func effectiveMode(obj *clusterv1.KsctlAutoScaler) clusterv1.ScalingMode {
	if obj.Spec.Suspend || obj.DeletionTimestamp != nil {
		return clusterv1.ScalingOff
	}
	return cmp.Or(obj.Spec.Mode, clusterv1.ScalingAuto)
}

// plan returns the plan for the pools, and the requests of Cluster Autoscaler that it includes.
// These requests must be answered when the plan is recorded.
func (s *Steps) plan(obj *clusterv1.KsctlAutoScaler, seen *observation) (*scalingPlan, []*changeRequest) {
	var granted []*changeRequest
	p := newPlan(obj, seen, s.Clock.Now(), func(p *scalingPlan) { granted = s.applyRequests(obj, seen, p) })
	if p.uncertainty != nil && p.now.Before(p.uncertainty.deadline) {
		seen.requeueAt = earliest(seen.requeueAt, p.uncertainty.deadline)
	}
	return p, granted
}

// record persists the plan in the status, publishes it for Cluster Autoscaler, and hands the
// operation to the agent's session.
func (s *Steps) record(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler], seen *observation,
	p *scalingPlan, granted []*changeRequest) error {
	obj, before := req.Object, req.Object.Status.DeepCopy()
	begun := session.IsInProgress(p.op) && p.op.State == clusterv1.OperationPending &&
		(before.Operation == nil || before.Operation.ID != p.op.ID)
	p.writeStatus(obj, seen)
	backoffs := p.startedBackoffs(before, s.Clock.Now())
	if begun || p.ended != nil || len(p.canceled) > 0 || len(granted) > 0 || len(backoffs) > 0 {
		if err := req.Persist(ctx, ""); err != nil {
			before.DeepCopyInto(&obj.Status) // the final status write must not persist the rejected plan
			answerAll(granted, unavailable(err))
			return err
		}
	}
	err := s.publish(ctx, obj, seen, p)
	answerAll(granted, err)
	if err != nil {
		return err
	}
	s.emitEvents(req, p, begun)
	s.countOperation(obj, p)
	for _, b := range backoffs {
		req.Event(corev1.EventTypeWarning, b.reason, b.message)
	}
	s.AgentSessions.Run(client.ObjectKeyFromObject(obj), p.op, begun)
	return nil
}

// updateNodes patches the nodes of workers as their pools require, and deletes the nodes whose
// machines no longer exist.
func (s *Steps) updateNodes(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *observation,
	p *scalingPlan) error {
	now := s.Clock.Now()
	mayDelete := func(m *machine) bool {
		return effectiveMode(obj) == clusterv1.ScalingAuto &&
			!inBackoff(p.backoffs[m.pool], clusterv1.OperationScaleDown, now)
	}
	staleTaints, due := p.staleTaints(&seen.machines, deletionRequestTimeout(&obj.Spec), now)
	seen.requeueAt = earliest(seen.requeueAt, due)
	err := patchNodes(ctx, seen.client, nodeChanges(&seen.machines, obj.Spec.Pools, mayDelete, staleTaints))
	if session.IsInProgress(p.op) || seen.agentErr != nil { // ownership of machines is unknown
		return err
	}
	nodes, next := deletableNodes(seen.machines.orphanedNodes, now)
	seen.requeueAt = earliest(seen.requeueAt, next)
	return errors.Join(err, deleteNodes(ctx, seen.client, nodes))
}

// emitEvents emits events about operations that began, ended or were canceled.
func (s *Steps) emitEvents(req *reconcile.Request[*clusterv1.KsctlAutoScaler], p *scalingPlan, begun bool) {
	for _, message := range p.canceled {
		req.Event(corev1.EventTypeNormal, "ScaleCanceled", message)
	}
	if op := p.ended; op != nil && op.State == clusterv1.OperationFailed {
		req.Event(corev1.EventTypeWarning, string(op.Kind)+"Failed", describeOperation(op)+": "+op.Message)
	} else if op != nil {
		req.Event(corev1.EventTypeNormal, string(op.Kind)+"Done", describeOperation(op))
	}
	if begun {
		req.Event(corev1.EventTypeNormal, string(p.op.Kind), describeOperation(p.op))
	}
}

// Finalize implements reconcile.Steps. An operation in progress continues without the controller.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler]) reconcile.Outcome {
	obj := req.Object
	if reconcile.Abandoned(obj) {
		req.Event(corev1.EventTypeWarning, "Abandoned",
			"annotations of nodes and the client Secret of Cluster Autoscaler are not deleted because of the "+
				"annotation "+appsv1.AbandonAnnotation)
		return reconcile.Done{Message: "annotations of nodes and the client Secret " +
			"of Cluster Autoscaler are not deleted"}
	}
	s.pausePolling(obj, errDeleting)
	s.AgentSessions.Run(client.ObjectKeyFromObject(obj), nil, false)
	remaining, err := s.deleteInstalls(ctx, obj, nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if len(remaining) > 0 {
		var waits []appsv1.WaitReference
		for _, name := range remaining {
			waits = append(waits, appsv1.WaitReference{Type: appsv1.WaitDeletion, Kind: appsv1.KsctlInstallKind,
				Namespace: obj.Namespace, Name: name})
		}
		return reconcile.Waiting{On: "waiting for the deletion of " + strings.Join(remaining, ", "), For: waits,
			RequeueAt: s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))}
	}
	localClient, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Local, obj, s.account(obj))
	if err != nil {
		return reconcile.OutcomeOf(reconcile.WithAbandonHint(err, "the Secret and the annotations of nodes", obj), "")
	}
	if err := engine.DeleteOwnedSecret(ctx, localClient, tlsSecretName(obj), OwnerAnnotation,
		ownerName(obj)); err != nil && !apierrors.IsForbidden(err) {
		return reconcile.Retry{Err: err}
	}
	if err := s.enableScaleDown(ctx, req, localClient); err != nil {
		return target.Outcome(reconcile.WithAbandonHint(err, "the annotations of nodes", obj), "")
	}
	return reconcile.Done{Message: "Cluster Autoscaler is removed; the machines are kept"}
}

// enableScaleDown removes the annotations that exclude nodes from scale-down, if the cluster can
// still be reached.
func (s *Steps) enableScaleDown(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler],
	localClient *engine.Client) error {
	seen, err := s.observeCluster(ctx, req, localClient)
	var resolveErr *target.Error
	if errors.As(err, &resolveErr) {
		return nil // the cluster can no longer be resolved
	}
	if err != nil {
		return err
	}
	return removeScaleDownDisabled(ctx, seen.client, seen.nodes, seen.workerNames)
}

// Forget implements reconcile.Steps. It keeps the state of an object that still exists and is
// selected, such as after a conflicting status write: the agent's session continues.
func (s *Steps) Forget(key types.NamespacedName) {
	var obj clusterv1.KsctlAutoScaler
	err := s.Client.Get(context.Background(), key, &obj)
	if err == nil && obj.DeletionTimestamp == nil &&
		(s.Selector == nil || s.Selector.Matches(labels.Set(obj.Labels))) && s.state.entry(key).uid == obj.UID {
		return
	}
	s.Published.Drop(key)
	s.NodeWatches.Forget(key)
	s.AgentSessions.Forget(key)
	if user := s.state.forget(key); user.Name != "" {
		s.Targets.Forget(user)
	}
}

// pausePolling publishes why the state of the cluster is uncertain. Until the next publish, Cluster
// Autoscaler's loops end at their start, and its changes are rejected.
func (s *Steps) pausePolling(obj *clusterv1.KsctlAutoScaler, reason error) {
	s.state.pausePolling(s.Published, client.ObjectKeyFromObject(obj), reason)
}

func ownerName(obj *clusterv1.KsctlAutoScaler) string { return obj.Namespace + "/" + obj.Name }

// errDeleting rejects the requests for an object that is being deleted.
var errDeleting = errors.New("the KsctlAutoScaler is being deleted")
