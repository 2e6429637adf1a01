package live

import (
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// maxMessage bounds Object.Message, in bytes.
const maxMessage = 256

const (
	kindJob = "Job"
	kindPod = "Pod"
	kindPVC = "PersistentVolumeClaim"
	kindCRD = "CustomResourceDefinition"
)

// JudgedByExpression reports whether ReadyExprAnnotation has a say in the
// readiness of a kind: only kinds that Kubernetes itself does not bring, so
// that an expression for a component's custom resources does not hold its
// ServiceAccounts. CEL never sees a Secret.
func JudgedByExpression(group, kind string) bool {
	switch group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
		return false
	}
	return kind != "" && !scheme.Scheme.IsGroupRegistered(group)
}

// judge says how ready an object is, why, and whether a Job or Pod ran to its
// end. It is kstatus, except where that does not fit a wait in order:
//   - a Job that runs is not Current, one that is complete is;
//   - a PersistentVolumeClaim that is Pending is Current: one that is bound when
//     its first consumer comes must not hold the wave that has the consumer;
//   - a CustomResourceDefinition needs its names accepted, too;
//   - a Pod that can't be scheduled stays InProgress, whatever the time: nodes
//     may be on their way; one that ended badly is Failed;
//   - a custom resource with an expression is what the expression says.
//
// A custom resource with neither conditions nor expression is Current at once.
func judge(u *unstructured.Unstructured, ref stacks.Ref, expr string) (Readiness, string, bool) {
	ready, message := compute(u)
	done := false
	if ready != Terminating {
		switch {
		case ref.Group == "batch" && ref.Kind == kindJob:
			ready, message = judgeJob(u.Object, ready, message)
		case ref.Group == "" && ref.Kind == kindPVC:
			ready, message = judgeClaim(u.Object, ready, message)
		case ref.Group == "" && ref.Kind == kindPod:
			ready, message = judgePod(u.Object, ready, message)
		case ref.Group == "apiextensions.k8s.io" && ref.Kind == kindCRD:
			ready, message = judgeDefinition(u.Object, ready, message)
		case expr != "" && JudgedByExpression(ref.Group, ref.Kind):
			ready, message = judgeExpr(u.Object, expr, ready, message)
		}
	}
	switch {
	case ref.Group == "batch" && ref.Kind == kindJob:
		done = isTrue(u.Object, "Complete") || isTrue(u.Object, "Failed")
	case ref.Group == "" && ref.Kind == kindPod:
		phase := nested(u.Object, "status", "phase")
		done = phase == "Succeeded" || phase == "Failed"
	}
	return ready, bounded(message, maxMessage), done
}

// Judge says how ready an object is that nobody marked, and why: what an install
// depends on. The expression, if there is one, has the last word on any kind but
// Secret, which CEL never sees.
func Judge(u *unstructured.Unstructured, expr string) (Readiness, string) {
	gk := u.GroupVersionKind().GroupKind()
	ref := stacks.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
	ready, message, _ := judge(u, ref, "")
	if expr != "" && ready != Terminating && !isSecret(ref) {
		ready, message = judgeExpr(u.Object, expr, ready, message)
		message = bounded(message, maxMessage)
	}
	return ready, message
}

// succeeded is true for a Job or a Pod that ran to its end well.
func succeeded(object map[string]any, ref stacks.Ref) bool {
	switch {
	case ref.Group == "batch" && ref.Kind == kindJob:
		return isTrue(object, "Complete")
	case ref.Group == "" && ref.Kind == kindPod:
		return nested(object, "status", "phase") == "Succeeded"
	}
	return false
}

// suspended is true for a Job whose spec says that it is not to run yet.
func suspended(object map[string]any, ref stacks.Ref) bool {
	v, _ := lookup(object, []string{"spec", "suspend"})
	is, _ := v.(bool)
	return is && ref.Group == "batch" && ref.Kind == kindJob
}

// compute is kstatus, which panics on some malformed statuses.
func compute(u *unstructured.Unstructured) (ready Readiness, message string) {
	defer func() {
		if p := recover(); p != nil {
			ready, message = InProgress, fmt.Sprintf("the status can't be read: %v", p)
		}
	}()
	res, err := status.Compute(u)
	if err != nil {
		return InProgress, "the status can't be read: " + err.Error()
	}
	switch res.Status {
	case status.CurrentStatus:
		ready = Current
	case status.FailedStatus:
		ready = Failed
	case status.InProgressStatus:
		ready = InProgress
	case status.TerminatingStatus:
		ready = Terminating
	default:
		ready = Unknown
	}
	return ready, res.Message
}

func judgeJob(object map[string]any, ready Readiness, message string) (Readiness, string) {
	switch {
	case isTrue(object, "Complete"), isTrue(object, "Failed"), ready != Current:
		return ready, message
	case isTrue(object, "Suspended"):
		return InProgress, "Job is suspended"
	default:
		return InProgress, message
	}
}

func judgeClaim(object map[string]any, ready Readiness, message string) (Readiness, string) {
	if ready == InProgress && nested(object, "status", "phase") == "Pending" {
		return Current, "waits for its first consumer or a provisioner"
	}
	return ready, message
}

func judgePod(object map[string]any, ready Readiness, message string) (Readiness, string) {
	switch nested(object, "status", "phase") {
	case "Pending":
		if c := condition(object, "PodScheduled"); c["status"] == "False" {
			return InProgress, "Pod is not scheduled: " + text(c, "message")
		}
	case "Failed":
		return Failed, "Pod ended with a failure"
	}
	return ready, message
}

func judgeDefinition(object map[string]any, ready Readiness, message string) (Readiness, string) {
	if ready == Current && !isTrue(object, "NamesAccepted") {
		return InProgress, "names are not accepted yet"
	}
	return ready, message
}

func judgeExpr(object map[string]any, expr string, ready Readiness, message string) (Readiness, string) {
	generation, _ := lookup(object, []string{"metadata", "generation"})
	observed, _ := lookup(object, []string{"status", "observedGeneration"})
	if g, ok := generation.(int64); ok {
		if o, ok := observed.(int64); ok && o < g {
			return InProgress, fmt.Sprintf("generation %d is not observed yet, %d is", g, o)
		}
	}
	is, err := readyexpr.Eval(expr, object)
	switch {
	case err != nil:
		// A status that is not filled in yet is the usual cause.
		return InProgress, "readyExpr: " + strings.ReplaceAll(err.Error(), "\n", " ")
	case is:
		return Current, "readyExpr is true"
	case ready == Failed:
		return Failed, message
	default:
		return InProgress, "readyExpr is false"
	}
}

func nested(object map[string]any, path ...string) string {
	v, _ := lookup(object, path)
	s, _ := v.(string)
	return s
}

// condition returns a condition of an object; nil if it has none of that type.
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

func isTrue(object map[string]any, conditionType string) bool {
	return condition(object, conditionType)["status"] == "True"
}
