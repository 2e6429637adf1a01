package install

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// wanted is a rendered stack.
type wanted struct {
	digest       string
	stackVersion string
	warnings     []string
	rendered     []stacks.RenderedComponent
	// decrypted is what it was rendered from that was encrypted.
	decrypted []string
}

// maxWarnings bounds the warnings in a status; the last one counts the others.
const maxWarnings = 10

// warnings fit a status, whatever a stack has to warn of.
func warnings(all []string) []string {
	var out []string
	for i, w := range all {
		if i == maxWarnings-1 && len(all) > maxWarnings {
			return append(out, fmt.Sprintf("and %d more", len(all)-i))
		}
		out = append(out, bounded(w, maxComponentMessage))
	}
	return out
}

// render returns what the install wants. It fetches and renders only if an
// input changed.
func (s *Steps) render(ctx context.Context, o *owner, c dynamic.Interface, a artifact.Artifact) (*wanted, error) {
	in := o.req.Object
	values, secrets, keys, err := s.inputs(ctx, o, c)
	if err != nil {
		return nil, err
	}
	choices, err := stacks.ChoicesFromInstall(in, values)
	if err != nil {
		return nil, err
	}
	caps, err := o.target.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	req := stacks.Request{
		Digest: a.Digest, Path: in.Spec.Path, Stack: in.Spec.Stack,
		Install: stacks.Identity{Namespace: in.Namespace, Name: in.Name},
		Choices: choices, Capabilities: caps, SecretKey: s.SecretKey, Keys: keys.Fingerprint(),
	}
	digest, err := stacks.Digest(req)
	if err != nil {
		return nil, err
	}
	reached, err := secrets.fingerprint(in, s.SecretKey)
	if err != nil {
		return nil, err
	}
	digest += reached
	if o.rendered.digest == digest {
		return &o.rendered, nil
	}
	render := s.rendering(in, a, secrets, keys, req)
	if o.req.Requested {
		o.stopped = setback{}
	}
	if err := o.stopped.holds(digest, s.Clock.Now()); err != nil {
		return nil, err
	}
	res, err := render(ctx)
	if err = o.stopped.after(err, digest, reconcile.RetryInterval(&in.Spec.Schedule), s.Clock.Now()); err != nil {
		return nil, err
	}
	o.render = render
	o.remember(&res)
	forgetManifests(&res)
	o.rendered = wanted{digest: digest, stackVersion: res.StackVersion, rendered: nonEmpty(res.Components),
		warnings: warnings(res.Warnings), decrypted: res.Decrypted}
	return &o.rendered, nil
}

// rendering fetches what a render needs, and renders it.
func (s *Steps) rendering(in *appsv1.KsctlInstall, a artifact.Artifact, secrets chartSecrets, keys *content.Keys, req stacks.Request) func(context.Context) (stacks.Result, error) {
	// It is kept between reconciles: with what it needs of the install, and no more.
	var kept appsv1.KsctlInstall
	kept.Spec.Charts, kept.Status.Components = in.Spec.Charts, in.Status.Components
	return func(ctx context.Context) (stacks.Result, error) {
		return s.Content.Render(ctx, a, req, keys, secrets.access(&kept), func(req *stacks.Request) error { return unchanged(&kept, req) })
	}
}

// forgetManifests keeps of a render what plans are made from. The renderer has
// the rest, compressed.
func forgetManifests(res *stacks.Result) {
	for i := range res.Components {
		for j := range res.Components[i].Objects {
			res.Components[i].Objects[j].Manifest = nil
		}
	}
}

// nonEmpty is nil when no component has an object.
func nonEmpty(cs []stacks.RenderedComponent) []stacks.RenderedComponent {
	for i := range cs {
		if len(cs[i].Objects) > 0 {
			return cs
		}
	}
	return nil
}
