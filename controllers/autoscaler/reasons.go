package autoscaler

import (
	"errors"
	"fmt"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/target"
)

// Reasons of a KsctlAutoScaler's conditions.
const (
	// ConflictReason: another KsctlAutoScaler has the cluster.
	ConflictReason = "Conflict"
	// AskingReason: the cluster, or its agent, was not heard of yet.
	AskingReason = "Asking"
	// AgentAccessReason: what it takes to speak with the agent is missing, or can't be used.
	AgentAccessReason = "AgentAccess"
	// AgentUnreachableReason: the agent does not answer.
	AgentUnreachableReason = "AgentUnreachable"
	// NotServingReason: Cluster Autoscaler is not answered.
	NotServingReason = "NotServing"
	// AutoscalerNotReadyReason: Cluster Autoscaler does not run yet.
	AutoscalerNotReadyReason = "AutoscalerNotReady"
	// AutoscalerUnhealthyReason: Cluster Autoscaler says that it is not well.
	AutoscalerUnhealthyReason = "AutoscalerUnhealthy"
	// VersionReason: no release of Cluster Autoscaler fits the cluster.
	VersionReason = "NoSuchVersion"
	// KubeConfigContextReason: Cluster Autoscaler would use another context of the kubeconfig.
	KubeConfigContextReason = "KubeConfigContext"
	// BackoffReason: machines of a pool could not be made or deleted.
	BackoffReason = "Backoff"
	// OrderReason: no agent deletes machines in the order that the spec asks for.
	OrderReason = "OrderNotSupported"
	// InvalidPoolReason: a label or a taint of a pool is none that nodes can have from it.
	InvalidPoolReason = "InvalidPool"
	// NameTakenReason: an install or a Secret of the name that is needed is somebody else's.
	NameTakenReason = "NameTaken"
)

// errGoing is why Cluster Autoscaler is told nothing of one that is being deleted.
var errGoing = errors.New("the KsctlAutoScaler is being deleted")

// stepError is why there is no next step. It carries what becomes of that.
type stepError struct {
	reason string
	err    error
	// waits is true when an event will tell more, and nobody has to mend anything; again when
	// it may be mended without an event.
	waits, again bool
}

// Error implements error.
func (e *stepError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *stepError) Unwrap() error { return e.err }

func fail(reason, format string, args ...any) error {
	return &stepError{reason: reason, err: fmt.Errorf(format, args...)}
}

func wait(reason, format string, args ...any) error {
	return &stepError{reason: reason, waits: true, err: fmt.Errorf(format, args...)}
}

func again(reason, format string, args ...any) error {
	return &stepError{reason: reason, again: true, err: fmt.Errorf(format, args...)}
}

// outcome of an error.
func outcome(err error) reconcile.Outcome {
	var step *stepError
	switch {
	case !errors.As(err, &step):
		return target.Outcome(err, "")
	case step.waits:
		return reconcile.Waiting{On: err.Error(), Reason: step.reason}
	case step.again:
		return reconcile.Retry{Err: err, Reason: step.reason}
	}
	return reconcile.Stalled{Err: err, Reason: step.reason}
}
