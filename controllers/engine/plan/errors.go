package plan

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// NotServedError is returned for a kind that the cluster does not serve.
type NotServedError struct {
	GVK schema.GroupVersionKind
	// BuiltIn is true when every API server serves the group itself. No CRD can provide the kind:
	// the manifest is wrong.
	BuiltIn bool
}

func (e *NotServedError) Error() string {
	if e.BuiltIn {
		return fmt.Sprintf("the cluster serves no kind %s in %s: check apiVersion and kind", e.GVK.Kind,
			e.GVK.GroupVersion())
	}
	return fmt.Sprintf("kind %s of %s is not served yet: no CustomResourceDefinition or APIService provides it",
		e.GVK.Kind, e.GVK.GroupVersion())
}

// InvalidObjectError is returned for an object that is not applied until its manifest changes. The
// inventory does not record it.
type InvalidObjectError struct {
	// Why is for users: what is wrong, and what to do.
	Why string
}

func (e *InvalidObjectError) Error() string { return e.Why }

// NewInvalidObjectError returns an InvalidObjectError with a formatted reason.
func NewInvalidObjectError(format string, args ...any) *InvalidObjectError {
	return &InvalidObjectError{Why: fmt.Sprintf(format, args...)}
}

// OwnedByOtherError is returned for an existing object that another owner or tool manages, or for a
// contribution to an object in which others have set its fields.
type OwnedByOtherError struct {
	Ref stacks.Ref
	// Fields are the fields that others have set; empty if the whole object is theirs.
	Fields []string
	// By is the display name of the owner or tool.
	By string
	// Hint tells users how to resolve the conflict.
	Hint string
}

func (e *OwnedByOtherError) Error() string {
	if n := len(e.Fields); n > 0 {
		fields := strings.Join(e.Fields[:min(n, maxNamedFields)], ", ")
		if n > maxNamedFields {
			fields += fmt.Sprintf(" and %d more fields", n-maxNamedFields)
		}
		return fmt.Sprintf("%s: %s has another value that %s set: %s", e.Ref, fields, e.By, e.Hint)
	}
	return fmt.Sprintf("%s exists and is managed by %s: %s", e.Ref, e.By, e.Hint)
}

// maxNamedFields is the number of fields that a message names.
const maxNamedFields = 5

// BeingDeletedError is returned for an object whose deletion is in progress.
type BeingDeletedError struct {
	Ref        stacks.Ref
	Finalizers []string
	// Since is the deletion timestamp, and FinalizerManager the field manager that set the
	// finalizers; zero and empty when they are not known.
	Since            time.Time
	FinalizerManager string
	// Remaining is the remaining content according to the status of a namespace.
	Remaining string
}

func (e *BeingDeletedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is being deleted", e.Ref)
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.RFC3339))
	}
	if len(e.Finalizers) > 0 {
		fmt.Fprintf(&b, ": waits for finalizers %v", e.Finalizers)
		if e.FinalizerManager != "" {
			fmt.Fprintf(&b, " set by %s", e.FinalizerManager)
		}
	}
	if e.Remaining != "" {
		fmt.Fprintf(&b, ": %s", e.Remaining)
	}
	return b.String()
}

// NewBeingDeletedError returns the error for an object that is being deleted.
func NewBeingDeletedError(o *live.Object) *BeingDeletedError {
	return &BeingDeletedError{Ref: o.Ref, Finalizers: o.Finalizers, Since: o.DeletionTimestamp,
		FinalizerManager: o.FinalizerManager, Remaining: o.DeletionMessage}
}

// ProtectedError is returned for an object with the annotation that forbids its deletion.
type ProtectedError struct{ Ref stacks.Ref }

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("%s has the annotation %s: remove the annotation to allow the deletion", e.Ref,
		live.PreventDeletionAnnotation)
}

// PreRemoveError is returned for a failed Job that has to succeed before anything is removed.
type PreRemoveError struct {
	Ref stacks.Ref
	// Message is the failure message of the Job, if it has one.
	Message string
}

func (e *PreRemoveError) Error() string {
	return fmt.Sprintf("%s, which runs before anything is removed, has failed (%s): see its log; delete the Job to "+
		"continue without it", e.Ref, e.Message)
}

// RemovalHookError is returned for hooks of a chart that fail before or after a removal.
type RemovalHookError struct {
	Component string
	// When is "before" or "after".
	When string
	// Message names the hooks and their failures.
	Message string
	// Secret keeps the hooks.
	Secret stacks.Ref
}

func (e *RemovalHookError) Error() string {
	return fmt.Sprintf("a hook of component %q that runs %s the removal has failed: %s: see its log; delete the "+
		"hook to run it again, or delete %s to skip the hooks of the component", e.Component, e.When, e.Message,
		e.Secret)
}
