package v1

// Reasons of conditions and events. Those of Flux are in github.com/fluxcd/pkg/apis/meta, those of
// fetching, decrypting and rendering in the packages of stacks/.
const (
	// IndexStaleReason means that the index of the target cluster is not synced.
	IndexStaleReason = "IndexStale"
	// TimeoutReason means that the reconcile takes longer than spec.timeout.
	TimeoutReason = "Timeout"
	// WaitCycleReason means that the object waits for objects that wait for it.
	WaitCycleReason = "WaitCycle"
	// ServiceAccountNotFoundReason means that the service account does not exist.
	ServiceAccountNotFoundReason = "ServiceAccountNotFound"
	// RemovingReason means that the teardown of the object is in progress.
	RemovingReason = "Removing"
	// SecretNotFoundReason: a Secret that the spec refers to does not exist.
	SecretNotFoundReason = "SecretNotFound"
	// StackNotInCatalogReason: the catalog does not have the stack, or not in this version.
	StackNotInCatalogReason = "StackNotInCatalog"
	// InvalidStackReason: the stack, or the configuration of it in the spec, is invalid.
	InvalidStackReason = "InvalidStack"
	// GeneratedValuesLostReason: the Secret with the values that a chart generated is gone.
	GeneratedValuesLostReason = "GeneratedValuesLost"
	// LiveValuesKeptReason: fields stay as they are in the cluster, because it is not known what a
	// chart generated for them earlier.
	LiveValuesKeptReason = "LiveValuesKept"
	// RemovalHooksSkippedReason: hooks of a chart do not run before or after its removal.
	RemovalHooksSkippedReason = "RemovalHooksSkipped"
	// TestsSucceededReason and TestsFailedReason are the results of the tests of charts.
	TestsSucceededReason = "TestsSucceeded"
	TestsFailedReason    = "TestsFailed"
	// RenderStoppedReason: the render exceeded a limit and was stopped, or its process died.
	RenderStoppedReason = "RenderStopped"
	// ChartSecretNotFoundReason: a Secret with the access to a chart repository does not exist.
	ChartSecretNotFoundReason = "ChartSecretNotFound"
	// StorageFullReason: an artifact does not fit into the controller's storage.
	StorageFullReason = "StorageFull"
	// ClusterNotFoundReason means that the KsctlCluster or the Secret with the kubeconfig does not
	// exist.
	ClusterNotFoundReason = "ClusterNotFound"
	// ClusterNotReadyReason means that the KsctlCluster has no kubeconfig yet, or is being deleted.
	ClusterNotReadyReason = "ClusterNotReady"
	// ClusterChangedReason means that the spec refers to another cluster than the one with the
	// installed objects.
	ClusterChangedReason = "ClusterChanged"
	// ClusterUnreachableReason means that the API server of the cluster does not answer.
	ClusterUnreachableReason = "ClusterUnreachable"
	// KubeConfigRefusedReason means that the kubeconfig would run a program, read a file or skip
	// the verification of the server.
	KubeConfigRefusedReason = "KubeConfigRefused"
	// AccessDeniedReason means that the cluster is in another namespace, and that cross-namespace
	// references are disabled.
	AccessDeniedReason = "AccessDenied"
	// EmptyRenderReason means that the stack renders no objects, but objects are installed or are
	// to be published.
	EmptyRenderReason = "EmptyRender"
	// OwnedByAnotherReason means that objects have another owner.
	OwnedByAnotherReason = "OwnedByAnother"
	// ObjectsDifferReason means that existing objects differ from the stack, so that spec.adopt:
	// Unchanged does not take them over.
	ObjectsDifferReason = "ObjectsDiffer"
	// ContestedReason means that another writer repeatedly changes an object. The object is not
	// corrected for a while.
	ContestedReason = "Contested"
	// InvalidObjectReason means that a manifest can never be applied without a change.
	InvalidObjectReason = "InvalidObject"
	// ChartChangedReason means that a repository serves another chart for an installed version.
	ChartChangedReason = "ChartChanged"
	// ValuesNotFoundReason means that a ConfigMap, a Secret or one of their keys is missing.
	ValuesNotFoundReason = "ValuesNotFound"
	// InvalidClusterValuesReason means that an expression of valuesFrom has no value for the
	// cluster.
	InvalidClusterValuesReason = "InvalidClusterValues"
	// DependencyCycleReason means that installs depend on each other.
	DependencyCycleReason = "DependencyCycle"
	// InvalidDependencyReason means that an entry of spec.dependsOn is invalid.
	InvalidDependencyReason = "InvalidDependency"
	// DeletionsHeldReason means that more objects would be deleted than spec.guard allows without
	// approval, or that the stack would be removed from too many clusters.
	DeletionsHeldReason = "DeletionsHeld"
	// FormNotSupportedReason means that a KsctlRemove names an install for many clusters.
	FormNotSupportedReason = "FormNotSupported"
	// PreRemoveFailedReason means that a Job failed that runs before a removal.
	PreRemoveFailedReason = "PreRemoveFailed"
	// JobFailedReason means that a Job failed whose result has a message.
	JobFailedReason = "JobFailed"
	// AbandonedReason means that objects stay in the cluster, as an annotation requests.
	AbandonedReason = "Abandoned"
	// RemovedByRequestReason means that components are not installed because of a KsctlRemove.
	RemovedByRequestReason = "RemovedByRequest"
	// DependentsExistReason means that other installs depend on an install that is being removed.
	DependentsExistReason = "DependentsExist"
	// SecretsRefusedReason means that the objects to publish contain Secrets, or may contain data
	// of Secrets or of encrypted files.
	SecretsRefusedReason = "SecretsRefused"
	// PublishingFailedReason means that a request or the disk failed.
	PublishingFailedReason = "PublishingFailed"
	// PublishingDisabledReason means that the controller runs without an artifact server.
	PublishingDisabledReason = "PublishingDisabled"
	// StillInstalledReason means that an install with publish mode Only has installed objects.
	StillInstalledReason = "StillInstalled"
	// NoClustersReason means that spec.clusterSelector selects no KsctlCluster.
	NoClustersReason = "NoClusters"
	// ClustersFailedReason means that one or more member installs have failed.
	ClustersFailedReason = "ClustersFailed"
	// AwaitingRolloutReason means that the rollout has not reached the cluster of a member install,
	// and that the revision that was released to it before is not available.
	AwaitingRolloutReason = "AwaitingRollout"
	// NoSuchComponentReason means that spec.components has a component that does not exist.
	NoSuchComponentReason = "NoSuchComponent"
	// AwaitingApprovalReason: the removal needs spec.approvedDigest.
	AwaitingApprovalReason = "AwaitingApproval"
	// RemovedReason: all approved objects are removed.
	RemovedReason = "Removed"
	// BranchRewrittenReason is the reason of an event: the new commit of a branch does not descend
	// from the previous one.
	BranchRewrittenReason = "BranchRewritten"
	// TagMovedReason is the reason of an event: a tag refers to another commit than before.
	TagMovedReason = "TagMoved"
	// CommitStatusFailedReason is the reason of an event: a commit status can't be written.
	CommitStatusFailedReason = "CommitStatusFailed"
	// GroupNotAllowedReason: the stack of a KsctlKind serves a kind in an API group that
	// --kind-groups does not list.
	GroupNotAllowedReason = "GroupNotAllowed"
	// KindNotReadyReason: the KsctlKind of an object publishes nothing now.
	KindNotReadyReason = "KindNotReady"
	// ObjectsFailedReason: objects of the kind failed with the revision that is rolled out.
	ObjectsFailedReason = "ObjectsFailed"
	// SchemaChangeRefusedReason: objects of the kind do not fit the changed schema.
	SchemaChangeRefusedReason = "SchemaChangeRefused"
	// InUseReason: objects of the kind exist, so that the KsctlKind is not removed.
	InUseReason = "InUse"
	// StorageOperationFailedReason: the artifact can't be stored or read.
	StorageOperationFailedReason = "StorageOperationFailed"
)
