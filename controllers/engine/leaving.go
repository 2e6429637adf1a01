package engine

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// LeavingError says that an object is being deleted and not gone.
type LeavingError struct {
	Ref        stacks.Ref
	Finalizers []string
	// Since is when it was deleted, and By the field manager that set the
	// finalizers, as far as that is known.
	Since time.Time
	By    string
	// Remains is what a namespace says is left in it.
	Remains string
}

func (e *LeavingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is being deleted", e.Ref)
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.RFC3339))
	}
	if len(e.Finalizers) > 0 {
		fmt.Fprintf(&b, ": waits for finalizers %v", e.Finalizers)
		if e.By != "" {
			fmt.Fprintf(&b, ", which %s set", e.By)
		}
	}
	if e.Remains != "" {
		fmt.Fprintf(&b, ": %s", e.Remains)
	}
	return b.String()
}

// leaving is what an object that is being deleted waits for.
func leaving(u *unstructured.Unstructured) *LeavingError {
	o, err := live.Project(u)
	if err != nil {
		return &LeavingError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return leavingObject(&o)
}

func leavingObject(o *live.Object) *LeavingError {
	return &LeavingError{Ref: o.Ref, Finalizers: o.Finalizers, Since: o.DeletionTimestamp, By: o.HeldBy, Remains: o.Remains}
}
