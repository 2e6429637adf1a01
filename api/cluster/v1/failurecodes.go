package v1

// Codes in status.pools[].backoff: why machines could not be created or deleted.
const (
	// CodeOutOfResources: the cloud has no capacity for the machine size, or the account has no
	// quota.
	CodeOutOfResources = "OutOfResources"
	// CodeDrain: the pods of a worker could not be evicted in time.
	CodeDrain = "Drain"
	// CodeFailed: the agent failed for another reason.
	CodeFailed = "Failed"
	// CodeNotDone: the agent reported success, but the number of workers is not the requested one.
	CodeNotDone = "NotDone"
	// CodeOtherSize: the created machines do not have the requested size.
	CodeOtherSize = "OtherSize"
	// CodeSlow: the agent takes longer to create machines than they may take to join.
	CodeSlow = "Slow"
	// CodeNoAnswer: ksctl's own agent did not respond in time, or the connection was lost. The
	// operation may still be in progress.
	CodeNoAnswer = "NoAnswer"
	// CodeUnsettled: no machines are created for any pool, because ksctl's own agent failed and did
	// not report the number of workers.
	CodeUnsettled = "Unsettled"
	// CodeJoinTimeout: a machine was created, but did not join the cluster in time.
	CodeJoinTimeout = "JoinTimeout"
)
