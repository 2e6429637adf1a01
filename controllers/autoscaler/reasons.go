package autoscaler

import (
	"errors"
)

// Reasons of a KsctlAutoScaler's conditions.
const (
	// ConflictReason: an older KsctlAutoScaler names the same cluster.
	ConflictReason = "Conflict"
	// ProbingReason: the nodes of the cluster are not listed yet, or its agent has not responded
	// yet.
	ProbingReason = "Probing"
	// AgentAccessReason: the Secret or the address of the agent is missing or invalid.
	AgentAccessReason = "AgentAccess"
	// AgentUnreachableReason: the last call of the agent failed.
	AgentUnreachableReason = "AgentUnreachable"
	// NotServingReason: requests of Cluster Autoscaler cannot be served.
	NotServingReason = "NotServing"
	// AutoscalerNotReadyReason: a KsctlInstall of Cluster Autoscaler is not ready.
	AutoscalerNotReadyReason = "AutoscalerNotReady"
	// AutoscalerUnhealthyReason: Cluster Autoscaler reports that it is unhealthy.
	AutoscalerUnhealthyReason = "AutoscalerUnhealthy"
	// AutoscalerNotPollingReason: Cluster Autoscaler has not sent a request for too long.
	AutoscalerNotPollingReason = "AutoscalerNotPolling"
	// VersionReason: no release of Cluster Autoscaler supports the version of the cluster.
	VersionReason = "NoSuchVersion"
	// KubeConfigContextReason: Cluster Autoscaler would use another context of the kubeconfig.
	KubeConfigContextReason = "KubeConfigContext"
	// BackoffReason: machines of a pool could not be created or deleted, or did not join.
	BackoffReason = "Backoff"
	// OrderReason: no agent supports the scale-down order of the spec.
	OrderReason = "OrderNotSupported"
	// InvalidPoolReason: a label, a taint or the size of a pool is not allowed.
	InvalidPoolReason = "InvalidPool"
	// NameTakenReason: a KsctlInstall or Secret with the required name belongs to another owner.
	NameTakenReason = "NameTaken"
)

// errDeleting rejects the requests for an object that is being deleted.
var errDeleting = errors.New("the KsctlAutoScaler is being deleted")
