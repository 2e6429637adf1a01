package provisioner

import "fmt"

// Class of an error: what is done about it depends on that alone.
type Class string

// Classes.
const (
	// OutOfResources is the cloud's having no more machines of the size, or the account's being
	// allowed none: it is no use to ask again soon.
	OutOfResources Class = "OutOfResources"
	// Other is everything else.
	Other Class = "Other"
)

// Error is what a program answers when it could not do what it was asked for.
type Error struct {
	// Code is the program's own word for it, such as QuotaExceeded.
	Code  string `json:"code"`
	Class Class  `json:"class"`
	// Message is for people. It has no secrets: it goes into statuses and logs.
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code == "" {
		return e.Message
	}
	return e.Code + ": " + e.Message
}

// Fault is what is wrong with how a program behaved.
type Fault string

// Faults.
const (
	// NotStarted is a program that can't be run at all.
	NotStarted Fault = "NotStarted"
	// Late is one that was killed when its time was over.
	Late Fault = "Late"
	// Stopped is one that was killed because the agent ends.
	Stopped Fault = "Stopped"
	// Crashed is one that ended otherwise than with status 0.
	Crashed Fault = "Crashed"
	// Silent is one that ended well and answered nothing.
	Silent Fault = "Silent"
	// Garbled is one whose answer can't be read.
	Garbled Fault = "Garbled"
	// TooLong is one that answered more than is read.
	TooLong Fault = "TooLong"
)

// ProgramError is that of a program which broke the contract, so that nobody knows what it did.
type ProgramError struct {
	Fault   Fault
	Message string
	// Err is the cause, if there is one.
	Err error
}

func broken(fault Fault, err error, format string, args ...any) *ProgramError {
	return &ProgramError{Fault: fault, Message: fmt.Sprintf(format, args...), Err: err}
}

// Error implements error.
func (e *ProgramError) Error() string { return "the provisioner " + e.Message }

// Unwrap gives the cause.
func (e *ProgramError) Unwrap() error { return e.Err }
