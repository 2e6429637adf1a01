package engine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
		return fmt.Sprintf("the cluster serves no kind %s in %s: check apiVersion and kind", e.GVK.Kind, e.GVK.GroupVersion())
	}
	return fmt.Sprintf("kind %s of %s is not served yet: no CustomResourceDefinition or APIService provides it", e.GVK.Kind, e.GVK.GroupVersion())
}

// WrongScopeError is returned for a manifest of a cluster-scoped kind that sets a namespace.
type WrongScopeError struct{ Ref stacks.Ref }

func (e *WrongScopeError) Error() string {
	return fmt.Sprintf("%s is cluster-scoped: remove metadata.namespace %q", e.Ref.Kind, e.Ref.Namespace)
}

// OwnedByOtherError is returned for an existing object that another owner or tool manages.
type OwnedByOtherError struct {
	Ref stacks.Ref
	// By is the display name of the owner or tool.
	By string
	// Hint tells users how to resolve the conflict.
	Hint string
}

func (e *OwnedByOtherError) Error() string {
	return fmt.Sprintf("%s exists and is managed by %s: %s", e.Ref, e.By, e.Hint)
}

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
	hint := "set spec.force to recreate it"
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
}

func (e *ObjectError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Verb, e.Ref, redactedMessage(e.Ref, e.Err))
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }
