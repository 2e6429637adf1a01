package engine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/stacks"
)

// NotServedError says that the cluster serves no such kind.
type NotServedError struct {
	GVK schema.GroupVersionKind
	// BuiltIn is true when the group is served by every API server, so that no
	// CRD will ever bring the kind: the manifest is wrong.
	BuiltIn bool
}

func (e *NotServedError) Error() string {
	if e.BuiltIn {
		return fmt.Sprintf("the cluster serves no kind %s in %s: check apiVersion and kind", e.GVK.Kind, e.GVK.GroupVersion())
	}
	return fmt.Sprintf("kind %s of %s is not served yet: no CustomResourceDefinition or APIService brings it", e.GVK.Kind, e.GVK.GroupVersion())
}

// WrongScopeError says that a manifest gives a namespace to a cluster-scoped kind.
type WrongScopeError struct{ Ref stacks.Ref }

func (e *WrongScopeError) Error() string {
	return fmt.Sprintf("%s is cluster-scoped: remove metadata.namespace %q", e.Ref.Kind, e.Ref.Namespace)
}

// OwnedError says that an object exists and belongs to somebody else.
type OwnedError struct {
	Ref stacks.Ref
	// By names the owner for people.
	By string
	// Hint says what to do about it.
	Hint string
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s exists and is managed by %s: %s", e.Ref, e.By, e.Hint)
}

// ImmutableError says that a change is not possible in place.
type ImmutableError struct {
	Ref stacks.Ref
	// Adopted is true for an object that was there before us.
	Adopted bool
	// Kept says why it must not be deleted to be made anew; empty when it may be.
	Kept string
	Err  error
}

func (e *ImmutableError) Error() string {
	hint := "set spec.force to recreate it"
	switch {
	case e.Adopted:
		hint = "it was there before, and is not recreated: delete it to have it made anew"
	case e.Kept != "":
		hint = e.Kept + ", so it is not recreated: take that away, or change the object back"
	}
	return fmt.Sprintf("%s can't be changed in place (%s): %s", e.Ref, hint, answer(e.Ref, e.Err))
}

// Unwrap returns the API server's answer.
func (e *ImmutableError) Unwrap() error { return e.Err }

// ObjectError says which object a request failed for.
type ObjectError struct {
	Ref  stacks.Ref
	Verb string
	Err  error
}

func (e *ObjectError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Verb, e.Ref, answer(e.Ref, e.Err))
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }
