package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// removalHooks returns the hooks that charts have for the removal of their component, for all
// components that are not desired anymore. The hooks are kept in the Secrets with generated values.
func (o *owner) removalHooks(ctx context.Context, c *engine.Client,
	desired []plan.Component) ([]plan.RemovalHooks, error) {
	var out []plan.RemovalHooks
	for component, ref := range o.generatedSecrets() {
		if slices.ContainsFunc(desired, func(d plan.Component) bool {
			return d.Name == component && len(d.Items) > 0
		}) || skipsHooks(o.req.Object, component) {
			continue
		}
		objects, err := o.readRemovalHooks(ctx, c, component, ref)
		if err != nil {
			return nil, err
		}
		if len(objects) == 0 {
			continue
		}
		entry, _ := o.inv.Get(ref.ID())
		pre := stacks.RenderedComponent{Name: component, Wave: int(entry.Wave)}
		post := pre
		for _, object := range objects {
			to := &pre
			if object.Hook.Phase == stacks.HookPostDelete {
				to = &post
			}
			object.Hook.Phase = stacks.HookPre // each weight is a step
			to.Objects = append(to.Objects, object)
		}
		prepared := engine.Prepare(ctx, []stacks.RenderedComponent{pre, post}, o.Policies(), o.target.Discovery)
		out = append(out, plan.RemovalHooks{Secret: ref.ID(), Pre: prepared[0], Post: prepared[1]})
	}
	return out, nil
}

// skipsHooks reports whether an install skips the hooks of a component. The stack may skip them,
// too: then the component keeps none.
func skipsHooks(in *appsv1.KsctlInstall, component string) bool {
	return slices.ContainsFunc(in.Spec.Components, func(c appsv1.ComponentChoice) bool {
		return c.Name == component && c.Hooks == appsv1.HooksSkip
	})
}

// readRemovalHooks returns the hooks in the Secret of a component. Without the Secret, or if it was
// changed, they are skipped: a removal does not wait for what nobody can restore.
func (o *owner) readRemovalHooks(ctx context.Context, c *engine.Client, component string,
	ref stacks.Ref) ([]stacks.Object, error) {
	v, err := o.generated[component], error(nil)
	if _, exists := o.target.Index.Get(ref); v == nil || !exists { // a user may have deleted it
		v, err = readGeneratedSecret(ctx, o, c, component, ref)
	}
	var invalid *reconcile.StepError
	switch {
	case errors.As(err, &invalid):
	case err != nil:
		return nil, err
	case v == nil:
		err = errors.New("it does not exist")
	default:
		var hooks []stacks.Object
		if hooks, err = stacks.DecodeHooks(v.Hooks); err == nil {
			return hooks, nil
		}
	}
	o.req.Event(corev1.EventTypeWarning, appsv1.RemovalHooksSkippedReason, fmt.Sprintf(
		"the hooks of component %q for its removal, if it has any, do not run: %s: %v", component, ref, err))
	return nil, nil
}
