package autoscaler

// agentState is how an operation stands, as the agent says.
type agentState int

const (
	agentRunning agentState = iota + 1
	agentSucceeded
	agentFailed
)

// word is what the agent says of an operation.
type word struct {
	// id of the operation; "": it knows of none.
	id    string
	state agentState
	// code and message are of why it failed, or what it is at.
	code, message string
}

// Codes of failures.
const (
	// CodeOutOfResources: the cloud has no more machines of that size, or the account may
	// have none.
	CodeOutOfResources = "OutOfResources"
	// CodeDrain: pods of a worker could not be moved in time.
	CodeDrain = "Drain"
	// CodeFailed is what the agent failed with otherwise.
	CodeFailed = "Failed"
	// CodeNotDone: the agent said that it was done, and it was not.
	CodeNotDone = "NotDone"
	// CodeOtherSize: machines of another size were made than were asked for.
	CodeOtherSize = "OtherSize"
	// CodeSlow: the agent takes longer to make machines than they may take to join.
	CodeSlow = "Slow"
	// CodeNoAnswer: ksctl's own agent did not say in time whether it was done, or was not reached
	// any more. It may still be at work.
	CodeNoAnswer = "NoAnswer"
	// CodeUnsettled: nothing is made for any pool, as ksctl's own agent failed, and did not say how
	// many workers there are.
	CodeUnsettled = "Unsettled"
	// CodeJoinTimeout: a machine was made, and did not join the cluster in time.
	CodeJoinTimeout = "JoinTimeout"
)
