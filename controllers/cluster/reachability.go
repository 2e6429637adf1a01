package cluster

import (
	"crypto/sha256"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// maxMessageBytes bounds the message of the condition Reachable.
const maxMessageBytes = 1024

// checkReachability requests a probe of the cluster, and reports the latest result.
func (s *Steps) checkReachability(req *reconcile.Request[*clusterv1.KsctlCluster], k clusterInfo,
	before *clusterv1.KsctlClusterStatus) reconcile.Outcome {
	obj := req.Object
	cfg, err := k.access.Config()
	if err != nil {
		return reconcile.OutcomeOf(reconcile.NewTerminalError(appsv1.KubeConfigRefusedReason, "%w", err), "")
	}
	yaml, err := k.access.YAML()
	if err != nil {
		return reconcile.OutcomeOf(err, "")
	}
	probeReq := probeRequest{accessHash: sha256.Sum256(yaml), config: cfg,
		timeout:      min(reconcile.Timeout(&obj.Spec.Schedule), maxProbeTimeout),
		interval:     reconcile.Interval(&obj.Spec.Schedule),
		failedBefore: apimeta.IsStatusConditionFalse(before.Conditions, clusterv1.ReachableCondition)}
	if req.Requested {
		probeReq.requestToken = obj.Annotations[appsv1.RequestedAtAnnotation]
	}
	result, ok := s.Prober.result(client.ObjectKeyFromObject(obj), probeReq)
	if !ok && (req.Requested || statusIsCurrent(obj, before)) {
		return reconcile.Deferred{} // the result of the probe enqueues the cluster
	}
	return s.reportReachability(obj, k, result, ok)
}

// statusIsCurrent reports whether the status has a probe result for this generation and server.
// After a start of the controller this result stays until the first probe ends.
func statusIsCurrent(obj *clusterv1.KsctlCluster, before *clusterv1.KsctlClusterStatus) bool {
	ready := apimeta.FindStatusCondition(before.Conditions, appsv1.ReadyCondition)
	reachable := apimeta.FindStatusCondition(before.Conditions, clusterv1.ReachableCondition)
	return ready != nil && ready.ObservedGeneration == obj.Generation && ready.Status != metav1.ConditionUnknown &&
		reachable != nil && reachable.Status != metav1.ConditionUnknown && before.Server == obj.Status.Server
}

// reportReachability sets the conditions from the latest probe result.
func (s *Steps) reportReachability(obj *clusterv1.KsctlCluster, k clusterInfo, result probeResult,
	ok bool) reconcile.Outcome {
	set := func(status metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{Type: clusterv1.ReachableCondition,
			Status: status, Reason: reason,
			Message: message[:min(len(message), maxMessageBytes)], ObservedGeneration: obj.Generation,
			LastTransitionTime: metav1.NewTime(s.Clock.Now())})
	}
	server := k.access.Server[:min(len(k.access.Server), maxMessageBytes/2)]
	switch {
	case !ok:
		obj.Status.KubernetesVersion, obj.Status.Nodes = "", nil
		set(metav1.ConditionUnknown, clusterv1.ProbingReason, "probing "+server)
		return reconcile.Waiting{On: "asking " + server,
			For:    []appsv1.WaitReference{{Type: appsv1.WaitResponse, Kind: "APIServer", Name: server}},
			Reason: clusterv1.ProbingReason}
	case result.err != nil:
		message := fmt.Errorf("probing API server %s: %w", server, result.err)
		set(metav1.ConditionFalse, clusterv1.UnreachableReason, message.Error())
		return reconcile.Retry{Err: message, Reason: clusterv1.UnreachableReason,
			RequeueAfter: max(result.nextProbe.Sub(s.Clock.Now()), time.Second)}
	}
	obj.Status.KubernetesVersion, obj.Status.Nodes = result.Version, result.Nodes
	set(metav1.ConditionTrue, clusterv1.ProbeSucceededReason, "API server "+server+" responds")
	return reconcile.Done{Message: "reachable with " + result.Version + nodeCount(result.Nodes) +
		"; kubeconfig in Secret " + obj.Status.KubeConfigSecret, RequeueAt: result.nextProbe}
}

func nodeCount(n *int32) string {
	switch {
	case n == nil:
		return ""
	case *n == 1:
		return " and 1 node"
	}
	return fmt.Sprintf(" and %d nodes", *n)
}
