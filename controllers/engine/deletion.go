package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// beingDeleted returns the error for an object whose deletion is in progress.
func beingDeleted(u *unstructured.Unstructured) *plan.BeingDeletedError {
	o, err := live.Project(u)
	if err != nil {
		return &plan.BeingDeletedError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return plan.NewBeingDeletedError(&o)
}
