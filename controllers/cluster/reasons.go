package cluster

// Reasons of a KsctlCluster's conditions.
const (
	// ImportNotFoundReason: the ImportState of spec.importRef does not exist.
	ImportNotFoundReason = "ImportNotFound"
	// ClusterNotImportedReason: the ImportState has not imported the state of the cluster.
	ClusterNotImportedReason = "ClusterNotImported"
	// KubeConfigNotFoundReason: neither the state nor the Secret contains a kubeconfig.
	KubeConfigNotFoundReason = "KubeConfigNotFound"
	// KubeConfigRefusedReason: the kubeconfig runs a program, reads a file, or disables TLS
	// verification.
	KubeConfigRefusedReason = "KubeConfigRefused"
	// SecretConflictReason: a Secret with the name exists and belongs to another owner.
	SecretConflictReason = "SecretConflict"
	// ArgoCDNotAllowedReason: --argocd-namespaces does not list the namespace of spec.argocd.
	ArgoCDNotAllowedReason = "ArgoCDNamespaceNotAllowed"
	// UnreachableReason: the last probe of the cluster's API server failed.
	UnreachableReason = "Unreachable"
	// ProbingReason: no probe of the cluster's API server has ended yet.
	ProbingReason = "Probing"
	// InUseReason: installs, removes or autoscalers have objects on the cluster.
	InUseReason = "InUse"
	// ProbeSucceededReason: the last probe of the cluster's API server succeeded.
	ProbeSucceededReason = "ProbeSucceeded"
)
