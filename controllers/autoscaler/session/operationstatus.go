package session

import clusterv1 "github.com/ksctl/gitops/api/cluster/v1"

// Phase is the phase of an operation, as the agent reports it.
type Phase int

// Phases of an operation.
const (
	Running Phase = iota + 1
	Succeeded
	Failed
)

// OperationStatus is the status of an operation, as the agent reports it.
type OperationStatus struct {
	// ID is the ID of the operation; "" if the agent knows of none.
	ID    string
	Phase Phase
	// Code is the failure code. Message is the error, or a description of the progress.
	Code, Message string
}

// IsInProgress reports whether there is an operation that has not ended.
func IsInProgress(op *clusterv1.ScaleOperation) bool {
	return op != nil && op.State != clusterv1.OperationSucceeded && op.State != clusterv1.OperationFailed
}
