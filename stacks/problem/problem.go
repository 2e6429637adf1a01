// Package problem has the error types of package stacks and its internal packages. They have file,
// line and component, and a list of several errors.
package problem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one problem in a stack or in the choices of an install, for the user who can correct it.
type Error struct {
	// File below the root of the source, and Line in it. Line is 0 if unknown.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Stack and Component that it is about.
	Stack     string `json:"stack,omitempty"`
	Component string `json:"component,omitempty"`
	// Field is the path of the field, such as helm.releaseName.
	Field string `json:"field,omitempty"`
	// Message is a sentence without a full stop: what is wrong and what was expected.
	Message string `json:"message"`
	// Suggestion is the most similar known name.
	Suggestion string `json:"suggestion,omitempty"`

	// Err is the cause, if any.
	Err error `json:"-"`
}

// Errorf returns an error about a line of a file. The file is empty and the line is 0 if unknown.
// As in fmt.Errorf, %w sets the cause.
func Errorf(file string, line int, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{File: file, Line: line, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Newf is like Errorf, for an error without a file.
func Newf(format string, args ...any) *Error { return Errorf("", 0, format, args...) }

// Error returns one line, for example: stacks/monitoring/stack.yaml:12: component "prometheus":
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errors are all problems that were found at once.
type Errors []*Error

// Error returns one line per error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns all errors, for errors.As and errors.Is.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Add appends all *Errors in err, as Flatten returns them.
func (es *Errors) Add(err error) { *es = append(*es, Flatten(err)...) }

// Err returns the errors sorted by file and line, or nil if there are none.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	sorted := slices.Clone(es)
	slices.SortStableFunc(sorted, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	return sorted
}

// Flatten returns all *Errors in err. It wraps an error of another type in an Error without file
// and line.
func Flatten(err error) Errors {
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
