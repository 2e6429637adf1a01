package autoscaler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// conclude sets the conditions and returns the outcome.
func (s *Steps) conclude(obj *clusterv1.KsctlAutoScaler, seen *observation, p *scalingPlan,
	r autoscalerHealth) reconcile.Outcome {
	now := s.Clock.Now()
	messages := p.degradedMessages(seen, now)
	conditions := []metav1.Condition{
		acceptedCondition(obj, nil),
		stateImportedCondition(seen),
		newCondition(clusterv1.ProviderServingCondition, "Serving", servingMessage(r, now), r.servingErr),
		newCondition(clusterv1.AutoscalerAvailableCondition, "Available",
			strings.Join(append([]string{availableMessage(obj)}, r.warnings...), "; "), r.installErr),
		newCondition(clusterv1.AutoscalerHealthyCondition, "Healthy", "Cluster Autoscaler reports no problem",
			r.healthErr),
	}
	progressing := metav1.Condition{Type: clusterv1.ProgressingCondition, Status: metav1.ConditionFalse, Reason: "Idle",
		Message: "no machine is being created or deleted"}
	if session.IsInProgress(p.op) {
		progressing.Status, progressing.Reason, progressing.Message = metav1.ConditionTrue, string(p.op.Kind),
			describeOperation(p.op)
	}
	degraded := metav1.Condition{Type: clusterv1.DegradedCondition, Status: metav1.ConditionFalse, Reason: "UpToDate",
		Message: "every pool can reach its target"}
	if len(messages) > 0 {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, clusterv1.BackoffReason,
			strings.Join(messages, "; ")
	}
	setConditions(obj, now, append(conditions, progressing, degraded)...)
	until := p.nextDeadline(seen, r, now)
	switch {
	case seen.agentErr != nil:
		return reconcile.RequeueBy(target.Outcome(agentError(obj, seen.agentErr), ""), until)
	case len(messages) > 0:
		return reconcile.Waiting{TimedOut: true, Reason: clusterv1.BackoffReason, On: degraded.Message,
			For: []appsv1.WaitReference{waitForCluster(obj)}, RequeueAt: until}
	}
	if err := cmp.Or(r.servingErr, r.installErr, r.healthErr); err != nil {
		return reconcile.RequeueBy(target.Outcome(err, ""), until)
	}
	message := fmt.Sprintf("%d %s of KsctlCluster %s between minSize and maxSize", len(p.pools),
		plural("pool", int32(len(p.pools))), obj.Spec.ClusterRef.Name)
	if m := effectiveMode(obj); m != clusterv1.ScalingAuto {
		message = fmt.Sprintf("mode is %s: %s", m, message)
	}
	return reconcile.Done{Message: message, RequeueAt: until}
}

// setConditions sets conditions of the object.
func setConditions(obj *clusterv1.KsctlAutoScaler, now time.Time, conditions ...metav1.Condition) {
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = obj.Generation, metav1.NewTime(now)
		apimeta.SetStatusCondition(&obj.Status.Conditions, c)
	}
}

// acceptedCondition returns the condition Accepted: False if err is not nil.
func acceptedCondition(obj *clusterv1.KsctlAutoScaler, err error) metav1.Condition {
	return newCondition(clusterv1.AcceptedCondition, "Accepted", "KsctlCluster "+obj.Spec.ClusterRef.Name+
		" is scaled by this KsctlAutoScaler", err)
}

func stateImportedCondition(seen *observation) metav1.Condition {
	c := metav1.Condition{Type: clusterv1.StateImportedCondition, Status: metav1.ConditionTrue, Reason: "Imported",
		Message: "the state of the cluster is imported"}
	if seen.cluster.Status.Facts == nil {
		c.Status, c.Reason = metav1.ConditionFalse, "NoState"
		c.Message = "the KsctlCluster has only a kubeconfig: its workers are the nodes whose names begin with " +
			clusterName(seen.cluster) + "-vm-wp-"
	}
	return c
}

// newCondition returns a condition that is True, or False with the reason and message of err if err
// is a *reconcile.StepError.
func newCondition(kind, reason, message string, err error) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	var step *reconcile.StepError
	if errors.As(err, &step) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, step.Reason, err.Error()
	}
	return c
}

// availableMessage returns the message of the condition AutoscalerAvailable if it is True.
func availableMessage(obj *clusterv1.KsctlAutoScaler) string {
	if !settings.InstallRequested(&obj.Spec) {
		return "not installed by this controller: spec.autoscaler.install is false"
	}
	return "Cluster Autoscaler is installed"
}

// servingMessage reports whether Cluster Autoscaler polls. The message does not change with each
// poll, so that a poll causes no status write.
func servingMessage(r autoscalerHealth, now time.Time) string {
	switch {
	case r.lastRequest.IsZero():
		return "Cluster Autoscaler has not sent a request yet"
	case now.Sub(r.lastRequest) > inactivityTimeout:
		return "Cluster Autoscaler has not sent a request since " + r.lastRequest.UTC().Format(time.RFC3339)
	}
	return "requests of Cluster Autoscaler are answered"
}

// degradedMessages describes for users why pools cannot reach their targets.
func (p *scalingPlan) degradedMessages(seen *observation, now time.Time) []string {
	var out []string
	for _, r := range p.pools {
		b := p.backoffs[r.pool.Name]
		action := "created"
		if b != nil && b.Operation == clusterv1.OperationScaleDown {
			action = "deleted"
		}
		if b != nil && inBackoff(b, b.Operation, now) {
			out = append(out, fmt.Sprintf("pool %s: no machines are %s until %s, after %d %s: %s: %s", r.pool.Name,
				action, b.Until.UTC().Format(time.RFC3339), b.Failures, plural("failure", b.Failures), b.Code,
				truncate(b.Message)))
		}
	}
	if p.blocked != "" {
		out = append(out, "no machines are created: "+p.blocked)
	}
	for _, i := range slices.Sorted(maps.Keys(seen.overdue)) {
		out = append(out, fmt.Sprintf("worker %d did not join the cluster in time", i))
	}
	return out
}

// nextDeadline returns the time of the next reconcile that no event triggers; zero if there is
// none.
func (p *scalingPlan) nextDeadline(seen *observation, r autoscalerHealth, now time.Time) time.Time {
	first := earliest(seen.requeueAt, earliest(r.renewAt, r.pollDeadline))
	for _, b := range p.backoffs {
		if now.Before(b.Until.Time) {
			first = earliest(first, b.Until.Time)
		}
	}
	return first
}
