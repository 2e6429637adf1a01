// Package problem is how everything below stacks says what is wrong: typed, with
// file, line and component, several at once.
package problem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong, told to the person who can put it right.
type Error struct {
	// File below the root of the source, and Line in it; 0 when not known.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Stack and Component that it is about.
	Stack     string `json:"stack,omitempty"`
	Component string `json:"component,omitempty"`
	// Field is the path of the field, such as helm.releaseName.
	Field string `json:"field,omitempty"`
	// Message is a whole sentence without its full stop: what is wrong and what was expected.
	Message string `json:"message"`
	// Suggestion is the nearest name that is known.
	Suggestion string `json:"suggestion,omitempty"`

	// Err is the cause, when there is one.
	Err error `json:"-"`
}

// Error reads like: stacks/monitoring/stack.yaml:12: component "prometheus":
// field "helm.relaseName" is not known; did you mean "releaseName"?
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Stack != "" {
		fmt.Fprintf(&b, "stack %q: ", e.Stack)
	}
	if e.Component != "" {
		fmt.Fprintf(&b, "component %q: ", e.Component)
	}
	b.WriteString(e.Message)
	if e.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.Suggestion)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that was found wrong at once.
type Errors []*Error

// Error has one line for each.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As and errors.Is look into each.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Err is nil when nothing is wrong, and sorted by file and line otherwise.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	sorted := slices.Clone(es)
	slices.SortStableFunc(sorted, func(a, b *Error) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return sorted
}

// All is every Error in err; something else becomes one without a place.
func All(err error) Errors {
	if err == nil {
		return nil
	}
	if many, ok := errors.AsType[Errors](err); ok {
		return many
	}
	if one, ok := errors.AsType[*Error](err); ok {
		return Errors{one}
	}
	return Errors{{Message: err.Error(), Err: err}}
}
