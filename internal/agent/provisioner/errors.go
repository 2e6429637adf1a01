package provisioner

import "fmt"

// Class is the class of an error. Callers react to the class only.
type Class string

// Classes.
const (
	// OutOfResources means that the cloud provider is out of capacity for the instance type, or
	// that the account's quota is exhausted. Retrying soon does not help.
	OutOfResources Class = "OutOfResources"
	// Other is any other error.
	Other Class = "Other"
)

// Error is the error in a program's response.
type Error struct {
	// Code is a code of the program, such as QuotaExceeded.
	Code  string `json:"code"`
	Class Class  `json:"class"`
	// Message is human-readable. It must not contain secrets: it is copied to statuses and logs.
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code == "" {
		return e.Message
	}
	return e.Code + ": " + e.Message
}

// Fault is the way in which a program violated the contract.
type Fault string

// Faults.
const (
	// NotStarted means that the program could not be started.
	NotStarted Fault = "NotStarted"
	// TimedOut means that the program was killed at its deadline.
	TimedOut Fault = "TimedOut"
	// Interrupted means that the program was killed because the agent shuts down.
	Interrupted Fault = "Interrupted"
	// Crashed means that the program exited with a status other than 0.
	Crashed Fault = "Crashed"
	// EmptyResponse means that the program exited with status 0 but wrote no response.
	EmptyResponse Fault = "EmptyResponse"
	// InvalidResponse means that the response is malformed.
	InvalidResponse Fault = "InvalidResponse"
	// ResponseTooLarge means that the response exceeds the size limit.
	ResponseTooLarge Fault = "ResponseTooLarge"
)

// ProgramError reports a program that violated the contract. The effect of its request is unknown.
type ProgramError struct {
	Fault Fault
	// Message is a predicate whose subject is the provisioner, such as "returned two workers".
	Message string
	// Err is the cause, if there is one.
	Err error
}

func newProgramError(fault Fault, err error, format string, args ...any) *ProgramError {
	return &ProgramError{Fault: fault, Message: fmt.Sprintf(format, args...), Err: err}
}

// Error implements error.
func (e *ProgramError) Error() string { return "the provisioner " + e.Message }

// Unwrap returns the cause.
func (e *ProgramError) Unwrap() error { return e.Err }
