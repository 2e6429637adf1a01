package v1

// Reasons of conditions and events of a KsctlCluster or a KsctlAutoScaler. Those that other kinds
// have, too, are in api/apps/v1.
const (
	// ImportNotFoundReason: the ImportState of spec.importRef does not exist.
	ImportNotFoundReason = "ImportNotFound"
	// ClusterNotImportedReason: the ImportState has not imported the state of the cluster.
	ClusterNotImportedReason = "ClusterNotImported"
	// KubeConfigNotFoundReason: neither the state nor the Secret contains a kubeconfig.
	KubeConfigNotFoundReason = "KubeConfigNotFound"
	// SecretConflictReason: a Secret with the name exists and belongs to another owner.
	SecretConflictReason = "SecretConflict"
	// ArgoCDNamespaceNotAllowedReason: --argocd-namespaces does not list the namespace of
	// spec.argocd.
	ArgoCDNamespaceNotAllowedReason = "ArgoCDNamespaceNotAllowed"
	// UnreachableReason: the last probe of the cluster's API server failed.
	UnreachableReason = "Unreachable"
	// ProbingReason: the cluster's API server or its agent has not responded yet, or the nodes are
	// not listed yet.
	ProbingReason = "Probing"
	// InUseReason: installs, removes or autoscalers have objects on the cluster.
	InUseReason = "InUse"
	// ProbeSucceededReason: the last probe of the cluster's API server succeeded.
	ProbeSucceededReason = "ProbeSucceeded"
	// ConflictReason: an older KsctlAutoScaler names the same cluster.
	ConflictReason = "Conflict"
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
	// NoSuchVersionReason: no release of Cluster Autoscaler supports the version of the cluster.
	NoSuchVersionReason = "NoSuchVersion"
	// KubeConfigContextReason: Cluster Autoscaler would use another context of the kubeconfig.
	KubeConfigContextReason = "KubeConfigContext"
	// BackoffReason: machines of a pool could not be created or deleted, or did not join.
	BackoffReason = "Backoff"
	// OrderNotSupportedReason: no agent supports the scale-down order of the spec.
	OrderNotSupportedReason = "OrderNotSupported"
	// InvalidPoolReason: a label, a taint or the size of a pool is not allowed.
	InvalidPoolReason = "InvalidPool"
	// NameTakenReason: a KsctlInstall or Secret with the required name belongs to another owner.
	NameTakenReason = "NameTaken"
	// ScaleUpBackoffReason: a backoff began, in which no machines of a pool are created.
	ScaleUpBackoffReason = "ScaleUpBackoff"
	// ScaleDownBackoffReason: a backoff began, in which no machines of a pool are deleted.
	ScaleDownBackoffReason = "ScaleDownBackoff"
)
