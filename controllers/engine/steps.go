package engine

import (
	"slices"

	"github.com/ksctl/gitops/stacks"
)

// Steps of a component: namespaces, its generated values, CRDs, pre hooks by weight, the main step
// with all other objects, and post hooks by weight.
const (
	stepNamespaces = iota
	stepGenerated
	stepCRDs
	stepPreHooks
)

// preRemovePositions returns a function for the position of each pre-remove Job of one component:
// by weight, from 1. It returns 0 for other objects.
func preRemovePositions(objects []stacks.Object) func(*stacks.Object) int32 {
	weights := hookWeights(objects, stacks.HookPreRemove)
	return func(o *stacks.Object) int32 {
		if o.Hook == nil || o.Hook.Phase != stacks.HookPreRemove {
			return 0
		}
		return int32(slices.Index(weights, o.Hook.Weight)) + 1
	}
}

// hookWeights returns the distinct weights of the hooks of a phase, sorted.
func hookWeights(objects []stacks.Object, phase stacks.HookPhase) []int {
	var weights []int
	for i := range objects {
		if h := objects[i].Hook; h != nil && (h.Phase == phase || phase == stacks.HookPost && h.AlsoPost) {
			weights = append(weights, h.Weight)
		}
	}
	slices.Sort(weights)
	return slices.Compact(weights)
}

// steps returns a function for the step of each object of one component. Only Namespaces, generated
// values, CRDs and hooks have steps of their own; all other objects are in the main step.
func steps(objects []stacks.Object) func(*stacks.Object) int {
	pre, post := hookWeights(objects, stacks.HookPre), hookWeights(objects, stacks.HookPost)
	main := stepPreHooks + len(pre)
	return func(o *stacks.Object) int {
		switch {
		case o.Hook != nil && o.Hook.Phase == stacks.HookPre:
			return stepPreHooks + slices.Index(pre, o.Hook.Weight)
		case o.Hook != nil && o.Hook.Phase == stacks.HookPost:
			return main + 1 + slices.Index(post, o.Hook.Weight)
		case o.Group == "" && o.Kind == "Namespace":
			return stepNamespaces
		case o.Generated:
			return stepGenerated
		case o.Group == "apiextensions.k8s.io" && o.Kind == "CustomResourceDefinition":
			return stepCRDs
		default:
			return main
		}
	}
}
