package cluster

// Reasons of a KsctlCluster's conditions.
const (
	// ImportNotFoundReason: the import that spec.importRef names does not exist.
	ImportNotFoundReason = "ImportNotFound"
	// ClusterNotImportedReason: the import has no state of the cluster.
	ClusterNotImportedReason = "ClusterNotImported"
	// KubeConfigNotFoundReason: there is no kubeconfig, neither in the state nor in a Secret.
	KubeConfigNotFoundReason = "KubeConfigNotFound"
	// KubeConfigRefusedReason: the kubeconfig would run a program, read a file, or trust anybody.
	KubeConfigRefusedReason = "KubeConfigRefused"
	// SecretTakenReason: a Secret of the name that is to be written is somebody else's.
	SecretTakenReason = "SecretTaken"
	// ArgoCDNotAllowedReason: --argocd-namespaces does not list the namespace.
	ArgoCDNotAllowedReason = "ArgoCDNamespaceNotAllowed"
	// UnreachableReason: the API server of the cluster does not answer as one.
	UnreachableReason = "Unreachable"
	// AskingReason: the API server of the cluster was not asked yet.
	AskingReason = "Asking"
	// InUseReason: somebody has objects on the cluster.
	InUseReason = "InUse"
	// AnsweredReason: the API server of the cluster has answered.
	AnsweredReason = "Answered"
)
