package live

import (
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ksctl/gitops/stacks/readyexpr"
)

// maxMessageBytes bounds Object.Message.
const maxMessageBytes = 256

var (
	jobKind    = schema.GroupKind{Group: "batch", Kind: "Job"}
	podKind    = schema.GroupKind{Kind: "Pod"}
	pvcKind    = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	secretKind = schema.GroupKind{Kind: "Secret"}
	crdKind    = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// readinessOf has no entry for statuses that count as Unknown.
var readinessOf = map[status.Status]Readiness{
	status.CurrentStatus: Current, status.FailedStatus: Failed,
	status.InProgressStatus: InProgress, status.TerminatingStatus: Terminating,
}

// supportsReadyExpr reports whether ReadyExprAnnotation applies to a kind. It applies only to kinds
// that are not built into Kubernetes, so that an expression for the custom resources of a component
// does not keep its ServiceAccounts from being ready. CEL never gets a Secret.
func supportsReadyExpr(group, kind string) bool {
	switch group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
		return false
	}
	return kind != "" && !scheme.Scheme.IsGroupRegistered(group)
}

// assess returns the readiness of an object, and the reason for it. The readiness is that of
// kstatus, except where kstatus does not fit an ordered wait:
//   - a running Job is not Current, a complete one is;
//   - a Pending PersistentVolumeClaim is Current: a claim that binds on its first consumer must
//     not block the wave that contains the consumer;
//   - a CustomResourceDefinition also needs accepted names;
//   - an unschedulable Pod stays InProgress for any time, because nodes may be on their way; a
//     Pod that failed is Failed;
//   - a custom resource with an expression has the readiness of that expression.
//
// A custom resource with neither conditions nor an expression is Current immediately.
func assess(u *unstructured.Unstructured, gk schema.GroupKind, expr string) (Readiness, string) {
	ready, message := computeStatus(u)
	if ready != Terminating {
		switch gk {
		case jobKind:
			ready, message = jobReadiness(u.Object, ready, message)
		case pvcKind:
			ready, message = pvcReadiness(u.Object, ready, message)
		case podKind:
			ready, message = podReadiness(u.Object, ready, message)
		case crdKind:
			ready, message = crdReadiness(u.Object, ready, message)
		default:
			if expr != "" && supportsReadyExpr(gk.Group, gk.Kind) {
				ready, message = exprReadiness(u.Object, expr, ready, message)
			}
		}
	}
	return ready, truncate(message, maxMessageBytes)
}

// AssessReadiness returns the readiness of an object without a mark, such as a dependency of an
// install, and the reason for it. A non-empty expression decides for every kind except Secret,
// which CEL never gets.
func AssessReadiness(u *unstructured.Unstructured, expr string) (Readiness, string) {
	gk := u.GroupVersionKind().GroupKind()
	ready, message := assess(u, gk, "")
	if expr != "" && ready != Terminating && gk != secretKind {
		ready, message = exprReadiness(u.Object, expr, ready, message)
		message = truncate(message, maxMessageBytes)
	}
	return ready, message
}

// outcome reports whether a Job or a Pod completed or failed, and whether it completed
// successfully.
func outcome(object map[string]any, gk schema.GroupKind) (finished, succeeded bool) {
	switch gk {
	case jobKind:
		succeeded = isConditionTrue(object, "Complete")
		return succeeded || isConditionTrue(object, "Failed"), succeeded
	case podKind:
		phase := nestedString(object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed", phase == "Succeeded"
	}
	return false, false
}

// computeStatus calls kstatus and recovers from its panics on some malformed statuses.
func computeStatus(u *unstructured.Unstructured) (ready Readiness, message string) {
	defer func() {
		if p := recover(); p != nil {
			ready, message = InProgress, fmt.Sprintf("invalid status: %v", p)
		}
	}()
	res, err := status.Compute(u)
	if err != nil {
		return InProgress, "invalid status: " + err.Error()
	}
	return readinessOf[res.Status], res.Message
}

func jobReadiness(object map[string]any, ready Readiness, message string) (Readiness, string) {
	switch {
	case isConditionTrue(object, "Complete"), isConditionTrue(object, "Failed"), ready != Current:
		return ready, message
	case isConditionTrue(object, "Suspended"):
		return InProgress, "Job is suspended"
	default:
		return InProgress, message
	}
}

func pvcReadiness(object map[string]any, ready Readiness, message string) (Readiness, string) {
	if ready == InProgress && nestedString(object, "status", "phase") == "Pending" {
		return Current, "waiting for the first consumer or a provisioner"
	}
	return ready, message
}

func podReadiness(object map[string]any, ready Readiness, message string) (Readiness, string) {
	switch nestedString(object, "status", "phase") {
	case "Pending":
		if c := condition(object, "PodScheduled"); c["status"] == "False" {
			return InProgress, "Pod is not scheduled: " + stringField(c, "message")
		}
	case "Failed":
		return Failed, "Pod ended with a failure"
	}
	return ready, message
}

func crdReadiness(object map[string]any, ready Readiness, message string) (Readiness, string) {
	if ready == Current && !isConditionTrue(object, "NamesAccepted") {
		return InProgress, "the names are not accepted yet"
	}
	return ready, message
}

func exprReadiness(object map[string]any, expr string, ready Readiness, message string) (Readiness, string) {
	generation, _ := lookup(object, []string{"metadata", "generation"})
	observed, _ := lookup(object, []string{"status", "observedGeneration"})
	if g, ok := generation.(int64); ok {
		if o, ok := observed.(int64); ok && o < g {
			return InProgress, fmt.Sprintf("generation %d is not observed yet: status.observedGeneration is %d", g, o)
		}
	}
	is, err := readyexpr.Eval(expr, object)
	switch {
	case err != nil:
		// The usual cause is an incomplete status.
		return InProgress, "readyExpr: " + strings.ReplaceAll(err.Error(), "\n", " ")
	case is:
		return Current, "readyExpr is true"
	case ready == Failed:
		return Failed, message
	default:
		return InProgress, "readyExpr is false"
	}
}

func nestedString(object map[string]any, path ...string) string {
	v, _ := lookup(object, path)
	s, _ := v.(string)
	return s
}

// condition returns the condition of a type; nil if there is none.
func condition(object map[string]any, conditionType string) map[string]any {
	v, _ := lookup(object, []string{"status", "conditions"})
	list, _ := v.([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == conditionType {
			return c
		}
	}
	return nil
}

func isConditionTrue(object map[string]any, conditionType string) bool {
	return condition(object, conditionType)["status"] == "True"
}

// NamespaceDeletionMessage returns the condition message of a namespace that is being deleted: the
// content or finalizers that remain in it, or why the deletion of its content fails. It is empty
// if there is no such condition, or if the object is no namespace. The finalizers of a namespace
// do not show why it remains: they are in its spec and are always the same.
func NamespaceDeletionMessage(u *unstructured.Unstructured) string {
	if u.GetAPIVersion() != "v1" || u.GetKind() != "Namespace" {
		return ""
	}
	for _, kind := range []corev1.NamespaceConditionType{corev1.NamespaceFinalizersRemaining,
		corev1.NamespaceContentRemaining,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceDeletionDiscoveryFailure} {
		c := condition(u.Object, string(kind))
		if m := stringField(c, "message"); m != "" && c["status"] == "True" {
			return m
		}
	}
	return ""
}
