package stacks

import "strconv"

// Bound is a resource that is limited for a render.
type Bound string

// Bounds of a render.
const (
	// TimeBound is the limit on the duration of a render.
	TimeBound Bound = "Time"
	// MemoryBound is the limit on the memory of a render.
	MemoryBound Bound = "Memory"
	// NoBound means that the process of the render exited without exceeding a limit.
	NoBound Bound = "None"
)

// StoppedError is the error of a render that was stopped before it completed. Unlike for an Error,
// the stack may be correct: with more time, or on a less busy machine, the same render may succeed.
type StoppedError struct {
	Stack string
	// Bound that the render exceeded.
	Bound Bound
	// Message is a sentence without a full stop: what happened, and which setting raises the
	// limit.
	Message string
}

// Error returns the message with the name of the stack.
func (e *StoppedError) Error() string {
	return "stack " + strconv.Quote(e.Stack) + ": " + e.Message
}
