package stacks

import "strconv"

// Bound is what a render may use only so much of.
type Bound string

// Bounds of a render.
const (
	// TimeBound is the time that a render may take.
	TimeBound Bound = "Time"
	// MemoryBound is the memory that a render may take.
	MemoryBound Bound = "Memory"
	// NoBound is that of a render whose process ended without having met one.
	NoBound Bound = "None"
)

// StoppedError says that a render was ended before it was done. Unlike an Error it
// need not be the stack's fault: with more time, on a machine that is less busy,
// the same render may succeed.
type StoppedError struct {
	Stack string
	// Bound that the render met.
	Bound Bound
	// Message is a whole sentence without its full stop: what happened, and which
	// setting allows more.
	Message string
}

// Error names the stack and says what happened.
func (e *StoppedError) Error() string {
	return "stack " + strconv.Quote(e.Stack) + ": " + e.Message
}
