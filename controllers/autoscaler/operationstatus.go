package autoscaler

// operationPhase is the phase of an operation, as the agent reports it.
type operationPhase int

const (
	phaseRunning operationPhase = iota + 1
	phaseSucceeded
	phaseFailed
)

// operationStatus is the status of an operation, as the agent reports it.
type operationStatus struct {
	// id is the ID of the operation; "" if the agent knows of none.
	id    string
	phase operationPhase
	// code is the failure code. message is the error, or a description of the progress.
	code, message string
}
