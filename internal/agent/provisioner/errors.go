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

// violation returns the error of a program that violated the contract. The effect of its request is
// unknown. format is a predicate whose subject is the provisioner, such as "returned two workers".
func violation(format string, args ...any) error {
	return fmt.Errorf("the provisioner "+format, args...)
}
