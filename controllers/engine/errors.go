package engine

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// ImmutableError is returned when a change needs the object to be recreated, and that is not
// allowed.
type ImmutableError struct {
	Ref stacks.Ref
	// Adopted is true for an object that existed before it was adopted.
	Adopted bool
	// KeepReason is the reason why the object must not be deleted; empty when spec.force would
	// allow it.
	KeepReason string
	// Err is the error of the API server.
	Err error
}

func (e *ImmutableError) Error() string {
	hint := "set spec.force, or the annotation " + appsv1.RecreateAnnotation + ": \"true\", to recreate it"
	switch {
	case e.Adopted:
		hint = "it existed before and is not recreated: delete it, or revert the change"
	case e.KeepReason != "":
		hint = e.KeepReason + ", so it is not recreated: remove that protection, or revert the change"
	}
	return fmt.Sprintf("%s cannot be changed in place (%s): %s", e.Ref, hint, redactedMessage(e.Ref, e.Err))
}

// Unwrap returns the error of the API server.
func (e *ImmutableError) Unwrap() error { return e.Err }

// ObjectError wraps the error of a request with its verb and object.
type ObjectError struct {
	Ref  stacks.Ref
	Verb string
	Err  error
	// Redact is that of the owner's policies.
	Redact func(message string) string
}

func (e *ObjectError) Error() string {
	message := redactedMessage(e.Ref, e.Err)
	if e.Redact != nil {
		message = e.Redact(message)
	}
	return fmt.Sprintf("%s %s: %s", e.Verb, e.Ref, message)
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }

// DifferentError is returned for existing objects that are not taken over because they differ from
// the desired ones.
type DifferentError struct {
	Component string
	Objects   []DifferentObject
	// text is the message, which all objects of a component share.
	text string
}

// maxDifferentObjects is the number of objects that a message names.
const maxDifferentObjects = 10

func newDifferentError(component string, objects []DifferentObject) *DifferentError {
	var named []string
	for i := range objects[:min(len(objects), maxDifferentObjects)] {
		named = append(named, objects[i].String())
	}
	if more := len(objects) - maxDifferentObjects; more > 0 {
		named = append(named, fmt.Sprintf("and %d more objects", more))
	}
	return &DifferentError{Component: component, Objects: objects,
		text: "no object is taken over while these differ from the stack (change them or the stack, or set " +
			"spec.adopt to Always): " + strings.Join(named, "; ")}
}

func (e *DifferentError) Error() string { return e.text }

// DifferentObject is an existing object that differs from the desired one.
type DifferentObject struct {
	Ref stacks.Ref
	// Paths are the JSON pointers of the fields that differ.
	Paths []string
	// Uncompared is why the dry run failed; empty if it did not.
	Uncompared metav1.StatusReason
}

// maxDifferentPaths is the number of fields of an object that a message names.
const maxDifferentPaths = 10

func (d *DifferentObject) String() string {
	if len(d.Paths) == 0 {
		return fmt.Sprintf("%s (not compared: the dry run fails with %s)", d.Ref, cmp.Or(d.Uncompared, "no answer"))
	}
	text := d.Ref.String() + " " + strings.Join(d.Paths[:min(len(d.Paths), maxDifferentPaths)], ", ")
	if more := len(d.Paths) - maxDifferentPaths; more > 0 {
		text += fmt.Sprintf(" and %d more fields", more)
	}
	return text
}
