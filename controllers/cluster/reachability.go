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

// maxMessage bounds what is told of a cluster in a condition, in bytes.
const maxMessage = 1024

// inquire says how the cluster is, as far as it has told.
func (s *Steps) inquire(req *reconcile.Request[*clusterv1.KsctlCluster], k known, before *clusterv1.KsctlClusterStatus) reconcile.Outcome {
	obj := req.Object
	cfg, err := k.access.Config()
	if err != nil {
		return reconcile.Failed(reconcile.Fail(KubeConfigRefusedReason, "%w", err))
	}
	yaml, err := k.access.YAML()
	if err != nil {
		return reconcile.Failed(err)
	}
	q := question{id: sha256.Sum256(yaml), config: cfg, within: min(reconcile.Timeout(&obj.Spec.Schedule), maxAskTime),
		interval: reconcile.Interval(&obj.Spec.Schedule), failed: apimeta.IsStatusConditionFalse(before.Conditions, clusterv1.ReachableCondition)}
	if req.Requested {
		q.token = obj.Annotations[appsv1.RequestedAtAnnotation]
	}
	said, ok := s.Prober.opinion(client.ObjectKeyFromObject(obj), q)
	if !ok && (req.Requested || told(obj, before)) {
		return reconcile.Deferred{} // the answer wakes it
	}
	return s.judge(obj, k, said, ok)
}

// told is true when the status says how this cluster is: after a start of the controller
// that holds until it is known to be otherwise.
func told(obj *clusterv1.KsctlCluster, before *clusterv1.KsctlClusterStatus) bool {
	ready := apimeta.FindStatusCondition(before.Conditions, appsv1.ReadyCondition)
	reachable := apimeta.FindStatusCondition(before.Conditions, clusterv1.ReachableCondition)
	return ready != nil && ready.ObservedGeneration == obj.Generation && ready.Status != metav1.ConditionUnknown &&
		reachable != nil && reachable.Status != metav1.ConditionUnknown && before.Server == obj.Status.Server
}

// judge turns an opinion into conditions.
func (s *Steps) judge(obj *clusterv1.KsctlCluster, k known, said opinion, ok bool) reconcile.Outcome {
	set := func(status metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{Type: clusterv1.ReachableCondition, Status: status, Reason: reason,
			Message: message[:min(len(message), maxMessage)], ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(s.Clock.Now())})
	}
	server := k.access.Server[:min(len(k.access.Server), maxMessage/2)]
	switch {
	case !ok:
		obj.Status.KubernetesVersion, obj.Status.Nodes = "", nil
		set(metav1.ConditionUnknown, AskingReason, "asking "+server)
		return reconcile.Waiting{On: "asking " + server, Reason: AskingReason}
	case said.err != nil:
		message := fmt.Errorf("%s does not answer as an API server: %w", server, said.err)
		set(metav1.ConditionFalse, UnreachableReason, message.Error())
		return reconcile.Retry{Err: message, Reason: UnreachableReason, After: max(said.next.Sub(s.Clock.Now()), time.Second)}
	}
	obj.Status.KubernetesVersion, obj.Status.Nodes = said.Version, said.Nodes
	set(metav1.ConditionTrue, AnsweredReason, server+" answers")
	return reconcile.Done{Message: "reachable with " + said.Version + nodes(said.Nodes) + "; kubeconfig in Secret " + obj.Status.KubeConfigSecret, Until: said.next}
}

func nodes(n *int32) string {
	switch {
	case n == nil:
		return ""
	case *n == 1:
		return " and 1 node"
	}
	return fmt.Sprintf(" and %d nodes", *n)
}
