package autoscaler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// conclude says how everything stands: the conditions, and the outcome.
func (s *Steps) conclude(obj *clusterv1.KsctlAutoScaler, seen *sight, p *plan, r running) reconcile.Outcome {
	now := s.Clock.Now()
	troubles := p.troubles(seen, now)
	conditions := []metav1.Condition{
		imported(seen),
		said(clusterv1.ProviderServingCondition, "Serving", served(r, now), r.serving),
		said(clusterv1.AutoscalerAvailableCondition, "Available", strings.Join(append([]string{available(obj)}, r.notes...), "; "), r.installed),
		said(clusterv1.AutoscalerHealthyCondition, "Healthy", "Cluster Autoscaler says nothing else", r.healthy),
	}
	accepted(obj, nil, now)
	progressing := metav1.Condition{Type: clusterv1.ProgressingCondition, Status: metav1.ConditionFalse, Reason: "Idle", Message: "no machine is being made or deleted"}
	if atWork(p.op) {
		progressing.Status, progressing.Reason, progressing.Message = metav1.ConditionTrue, string(p.op.Kind), describe(p.op)
	}
	degraded := metav1.Condition{Type: clusterv1.DegradedCondition, Status: metav1.ConditionFalse, Reason: "AsWanted", Message: "every pool can be brought to its target"}
	if len(troubles) > 0 {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, BackoffReason, strings.Join(troubles, "; ")
	}
	for _, c := range append(conditions, progressing, degraded) {
		c.ObservedGeneration = obj.Generation
		c.LastTransitionTime = metav1.NewTime(now)
		apimeta.SetStatusCondition(&obj.Status.Conditions, c)
	}
	until := p.until(seen, r, now)
	switch {
	case seen.agentErr != nil:
		return reconcile.By(outcome(unheard(obj, seen.agentErr)), until)
	case len(troubles) > 0:
		return reconcile.Waiting{Late: true, Reason: BackoffReason, On: degraded.Message, Until: until}
	}
	for _, err := range []error{r.serving, r.installed, r.healthy} {
		if err != nil {
			return reconcile.By(outcome(err), until)
		}
	}
	message := fmt.Sprintf("%d %s of KsctlCluster %s between minSize and maxSize", len(p.rows), plural("pool", int32(len(p.rows))), obj.Spec.ClusterRef.Name)
	if m := mode(obj); m != clusterv1.ScalingAuto {
		message = fmt.Sprintf("mode is %s: %s", m, message)
	}
	return reconcile.Done{Message: message, Until: until}
}

// accepted says whether the cluster scales by an object; err is why it does not.
func accepted(obj *clusterv1.KsctlAutoScaler, err error, now time.Time) {
	c := said(clusterv1.AcceptedCondition, "Accepted", "KsctlCluster "+obj.Spec.ClusterRef.Name+" scales by it", err)
	c.ObservedGeneration, c.LastTransitionTime = obj.Generation, metav1.NewTime(now)
	apimeta.SetStatusCondition(&obj.Status.Conditions, c)
}

func imported(seen *sight) metav1.Condition {
	c := metav1.Condition{Type: clusterv1.StateImportedCondition, Status: metav1.ConditionTrue, Reason: "Imported", Message: "the state of the cluster is known"}
	if seen.cluster.Status.Facts == nil {
		c.Status, c.Reason = metav1.ConditionFalse, "NoState"
		c.Message = "the KsctlCluster has a kubeconfig alone: its workers are those whose names begin with " + clusterName(seen.cluster) + "-vm-wp-"
	}
	return c
}

// said is a condition that is true unless there is an error.
func said(kind, reason, message string, err error) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	var step *reconcile.StepError
	if errors.As(err, &step) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, step.Reason, err.Error()
	}
	return c
}

// available is what there is of Cluster Autoscaler, when nothing is wrong with that.
func available(obj *clusterv1.KsctlAutoScaler) string {
	if !settings.Installed(&obj.Spec) {
		return "nothing is to be installed: spec.autoscaler.install is false"
	}
	return "Cluster Autoscaler is installed"
}

// served is when Cluster Autoscaler has asked last, in words that do not change with each loop.
func served(r running, now time.Time) string {
	switch {
	case r.asked.IsZero():
		return "Cluster Autoscaler has not asked yet"
	case now.Sub(r.asked) > staleProbe:
		return "Cluster Autoscaler has not asked since " + r.asked.UTC().Format(time.RFC3339)
	}
	return "Cluster Autoscaler asks, and is answered"
}

// troubles are what keeps pools from their targets, for people.
func (p *plan) troubles(seen *sight, now time.Time) []string {
	var out []string
	for _, r := range p.rows {
		b := p.backoffs[r.pool.Name]
		what := "made"
		if b != nil && b.Operation == clusterv1.OperationScaleDown {
			what = "deleted"
		}
		if b != nil && backsOff(b, b.Operation, now) {
			out = append(out, fmt.Sprintf("pool %s: nothing is %s until %s, after %d %s: %s: %s", r.pool.Name, what, b.Until.UTC().Format(time.RFC3339), b.Failures, plural("failure", b.Failures), b.Code, clip(b.Message)))
		}
	}
	if p.held != "" {
		out = append(out, "nothing is made: "+p.held)
	}
	for _, i := range sorted(seen.late) {
		out = append(out, fmt.Sprintf("worker %d was made and has not joined the cluster in time", i))
	}
	return out
}

func sorted(set map[int32]bool) []int32 {
	var out []int32
	for i := range set {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// until is when something is due that no event tells.
func (p *plan) until(seen *sight, r running, now time.Time) time.Time {
	due := []time.Time{seen.next, r.renew, r.silent}
	for _, b := range p.backoffs {
		if b != nil && backsOff(b, b.Operation, now) {
			due = append(due, b.Until.Time)
		}
	}
	var first time.Time
	for _, at := range due {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
