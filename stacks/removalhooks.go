package stacks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// maxHookBytes bounds the decoded hooks of a component: whoever may write the Secret may have
// changed them.
const maxHookBytes = 16 << 20

// DecodeHooks returns the hooks in Values.Hooks, in the order of Helm: by weight, then by kind.
func DecodeHooks(encoded []byte) ([]Object, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	var hooks []Object
	err := decompress(encoded, maxHookBytes, &hooks) // JSON that is cut off is an error
	for i := range hooks {
		h := &hooks[i]
		if h.Hook == nil || h.Hook.Phase != HookPreDelete && h.Hook.Phase != HookPostDelete || len(h.Manifest) == 0 {
			err = errors.Join(err, fmt.Errorf("%s is not a hook of a removal", h.Ref))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hooks of a removal: %w", err)
	}
	return hooks, nil
}

// storeRemovalHooks moves the hooks that are created before or after a removal from the rendered
// objects to the generated values: a removal needs neither source nor stack.
func (r *renderRun) storeRemovalHooks(rendered [][]*manifest.Object) ([][]*manifest.Object, error) {
	out := slices.Clone(rendered)
	for i, objects := range rendered {
		p := &r.resolved.Components[i]
		var hooks []Object
		for _, o := range objects {
			stored, err := r.removalHooks(o)
			if err != nil {
				return nil, r.withComponent(p, err)
			}
			hooks = append(hooks, stored...)
		}
		out[i] = slices.DeleteFunc(slices.Clone(objects), func(o *manifest.Object) bool {
			return o.Hook != nil && o.Hook.NotApplied
		})
		if len(hooks) == 0 {
			continue
		}
		slices.SortStableFunc(hooks, func(a, b Object) int { return a.Hook.Weight - b.Hook.Weight })
		if err := r.keepHooks(p, hooks); err != nil {
			return nil, r.withComponent(p, err)
		}
	}
	return out, nil
}

// removalHooks returns an object as the hooks of a removal that it is; none for most objects.
func (r *renderRun) removalHooks(o *manifest.Object) (out []Object, err error) {
	if o.Hook == nil {
		return nil, nil
	}
	add := func(phase HookPhase) {
		var hook Object
		if hook, err = r.buildObject(o, func([]byte) bool { return true }); err != nil {
			return
		}
		// Finished hooks are always deleted. The hash tells them from a hook of the install.
		hook.Hook = &Hook{Phase: phase, Weight: o.Hook.Weight, DeletePolicies: []string{"hook-succeeded"}}
		hook.Hash += "-" + string(phase)
		out = append(out, hook)
	}
	if o.Hook.PreDelete {
		add(HookPreDelete)
	}
	if o.Hook.PostDelete && err == nil {
		add(HookPostDelete)
	}
	return out, err
}

// keepHooks adds hooks to the generated values of a component.
func (r *renderRun) keepHooks(p *ResolvedComponent, hooks []Object) (err error) {
	name, generate := p.Component.Name, &r.req.Generate
	switch {
	case generate.Policy == generated.Refuse:
		r.warn(p.Component, []string{"the hooks of its removal do not run: they are kept with generated values, " +
			"which spec.generate or spec.publish refuses"})
		return nil
	case generate.Policy != generated.Keep:
		return nil
	case r.generated[name] == nil && generate.Values[name] != nil:
		r.generated[name] = generated.NewValues(generate.Values[name].Key)
	case r.generated[name] == nil:
		r.generated[name] = generated.NewValues(nil)
	}
	r.generated[name].Hooks, err = compress(hooks)
	return err
}
