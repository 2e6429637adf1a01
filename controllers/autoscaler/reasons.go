package autoscaler

import (
	"errors"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
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
	// AutoscalerSilentReason: Cluster Autoscaler has not asked for long.
	AutoscalerSilentReason = "AutoscalerSilent"
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

// outcome of an error.
func outcome(err error) reconcile.Outcome {
	var step *reconcile.StepError
	if errors.As(err, &step) {
		return reconcile.Failed(err)
	}
	return target.Outcome(err, "")
}
