package install

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// renderedStack is a rendered stack without manifests.
type renderedStack struct {
	digest       string
	stackVersion string
	warnings     []string
	components   []stacks.RenderedComponent
	// decrypted are the encrypted files that it was rendered from.
	decrypted []string
	// removes are the installs that its KsctlRemoves remove, by the id of the KsctlRemove.
	removes map[string]types.NamespacedName
}

// maxWarnings is the maximum number of warnings in a status. If there are more, the last one has
// their number.
const maxWarnings = 10

// boundWarnings limits the number and the length of the warnings for the status.
func boundWarnings(all []string) []string {
	var out []string
	for i, w := range all {
		if i == maxWarnings-1 && len(all) > maxWarnings {
			return append(out, fmt.Sprintf("and %d more", len(all)-i))
		}
		out = append(out, reconcile.Truncate(w, maxComponentMessage))
	}
	return out
}

// render returns the rendered stack of an install. It fetches and renders only if an input has
// changed.
func (s *Steps) render(ctx context.Context, o *owner, c, targetClient *engine.Client,
	a artifact.Artifact) (*renderedStack, error) {
	in := o.req.Object
	choices, secrets, keys, err := s.inputs(ctx, o, c)
	if err != nil {
		return nil, err
	}
	caps, err := o.target.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := s.clusterFacts(ctx, in)
	if err != nil {
		return nil, err
	}
	generate, err := s.generateOptions(ctx, o, targetClient)
	if err != nil {
		return nil, err
	}
	req := stacks.Request{
		Digest: a.Digest, Path: in.Spec.Path, Stack: in.Spec.Stack,
		Install: stacks.Identity{Namespace: in.Namespace, Name: in.Name},
		Choices: choices, Capabilities: caps, SecretKey: s.SecretKey, DecryptionKeyID: keys.Fingerprint(),
		Generate: generate, Releases: o.requestReleases(), Cluster: selectFacts(cluster, o.factPaths),
	}
	chartFingerprint, err := secrets.fingerprint(in, s.SecretKey)
	if err != nil {
		return nil, err
	}
	digest, err := renderDigest(req, chartFingerprint)
	if err != nil {
		return nil, err
	}
	if o.rendered.digest == digest {
		s.factReads.record(client.ObjectKeyFromObject(in), o.factPaths)
		return &o.rendered, nil
	}
	if o.req.Requested {
		o.renderBackoff = renderBackoff{}
	}
	if err := o.renderBackoff.check(digest, s.Clock.Now()); err != nil {
		return nil, err
	}
	render := s.renderFunc(in, a, secrets, keys)
	res, err := renderGenerating(ctx, o, targetClient, &req, s.withFacts(o, cluster, render))
	if err = o.renderBackoff.record(err, digest, reconcile.RetryInterval(&in.Spec.Schedule),
		s.Clock.Now()); err != nil {
		return nil, err
	}
	// The facts, the generated values and the records are an input from now on.
	req.Cluster = selectFacts(cluster, o.factPaths)
	o.generated, req.Releases = req.Generate.Values, res.NextReleases(req.Releases)
	o.releases = maps.Clone(req.Releases)
	if digest, err = renderDigest(req, chartFingerprint); err != nil {
		return nil, err
	}
	o.rerender = func(ctx context.Context) (stacks.Result, error) { return render(ctx, req) }
	removes := removedInstalls(&res)
	o.storeManifests(&res)
	o.rendered = renderedStack{digest: digest, stackVersion: res.StackVersion, components: nilIfEmpty(res.Components),
		warnings: res.Warnings, decrypted: res.Decrypted, removes: removes}
	return &o.rendered, nil
}

// renderDigest returns the digest of a request, and of the charts that are fetched for it.
func renderDigest(req stacks.Request, charts string) (string, error) {
	digest, err := stacks.Digest(req)
	return digest + charts, err
}

// renderFunc returns a function that fetches the inputs of a render, and renders the stack.
func (s *Steps) renderFunc(in *appsv1.KsctlInstall, a artifact.Artifact, secrets chartSecrets,
	keys *content.Keys) func(context.Context, stacks.Request) (stacks.Result, error) {
	// The function is kept between reconciles, so it captures only the fields that it needs.
	var kept appsv1.KsctlInstall
	kept.Spec.Charts, kept.Status.Components = in.Spec.Charts, in.Status.Components
	return func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		return s.Content.Render(ctx, a, req, keys, secrets.access(&kept), func(req *stacks.Request) error {
			return checkChartDigests(&kept, req)
		})
	}
}

// nilIfEmpty returns nil if no component has an object of its own.
func nilIfEmpty(cs []stacks.RenderedComponent) []stacks.RenderedComponent {
	for _, c := range cs {
		if slices.ContainsFunc(c.Objects, func(o stacks.Object) bool { return !o.Generated }) {
			return cs
		}
	}
	return nil
}
