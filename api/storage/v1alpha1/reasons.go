package v1alpha1

// Reasons of conditions of an ImportState or an ExportState. Those that other kinds have, too, are
// in api/apps/v1.
const (
	// PathNotFoundReason: the source does not contain the file or folder of spec.path.
	PathNotFoundReason = "PathNotFound"
	// InvalidStateReason: a file or an entry of the store is not a state of ksctl, or one that
	// ksctl cannot use.
	InvalidStateReason = "InvalidState"
	// PlaintextSecretsReason: secrets are not, or would not be, encrypted.
	PlaintextSecretsReason = "PlaintextSecrets"
	// ExternalStorageReason: ksctl stores the states in a MongoDB.
	ExternalStorageReason = "ExternalStorage"
	// StateConflictReason: the store contains another state of a cluster, or that of an agent may.
	StateConflictReason = "StateConflict"
	// StoreFullReason: the states do not fit into the store.
	StoreFullReason = "StoreFull"
	// StoreContendedReason: writes conflicted repeatedly with those of other clients.
	StoreContendedReason = "StoreContended"
	// DryRunReason: nothing is written; the status describes what would be.
	DryRunReason = "DryRun"
	// InUseReason: a KsctlCluster that the ImportState created is in use and must be deleted first.
	InUseReason = "InUse"
	// AgentSecretInvalidReason: a key of the agent's Secret is missing or invalid.
	AgentSecretInvalidReason = "AgentSecretInvalid"
	// AgentAddressRefusedReason: the address of the agent is invalid or not allowed.
	AgentAddressRefusedReason = "AgentAddressRefused"
	// AgentUnreachableReason: the agent does not respond, or fails TLS verification.
	AgentUnreachableReason = "AgentUnreachable"
	// AgentFailedReason: the agent returns an error.
	AgentFailedReason = "AgentFailed"
	// StoreNotFoundReason: the namespace has no ksctl store yet.
	StoreNotFoundReason = "StoreNotFound"
	// SecretConflictReason: the Secret exists and belongs to another owner.
	SecretConflictReason = "SecretConflict"
	// SecretFullReason: the files do not fit into the Secret.
	SecretFullReason = "SecretFull"
	// FileTakenReason: a file with the same name exists and is not an export of the same entry.
	FileTakenReason = "FileTaken"
	// ExportedByAnotherReason: an older export writes the same file.
	ExportedByAnotherReason = "ExportedByAnother"
	// TargetContendedReason: writes conflicted repeatedly with those of other clients.
	TargetContendedReason = "TargetContended"
)
