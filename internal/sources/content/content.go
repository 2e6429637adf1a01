// Package content gets what a stack holds: from a reference to a source to
// rendered objects.
package content

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/chart"
	"github.com/ksctl/gitops/stacks/sops"
)

// Loader gets the content of stacks.
type Loader struct {
	// Sources finds the artifact of a source.
	Sources *sourceref.Resolver
	// Catalog has the stacks that the controller ships.
	Catalog *catalog.Catalog
	// Fetcher gets the trees of artifacts, Charts those of charts in repositories,
	// Renderer renders the stacks in them.
	Fetcher  *artifact.Fetcher
	Charts   *chart.Fetcher
	Renderer *stacks.Renderer
	// Decrypt decrypts files; nil: they are refused.
	Decrypt sops.Decrypter
	// ChartLimits bound each chart that is rendered.
	ChartLimits stacks.ChartLimits
}

// Artifact finds what the source of a stack offers, for an object in a namespace.
func (l *Loader) Artifact(ctx context.Context, ref appsv1.SourceRef, namespace, stack, version string) (artifact.Artifact, error) {
	if ref.Kind == appsv1.CatalogKind {
		return l.Catalog.Artifact(ctx, stack, version)
	}
	src, err := l.Sources.Resolve(ctx, ref, namespace)
	return src.Artifact, err
}

// Newest is Artifact as the API server has it now, by a reader that asks it: for an
// answer that no event of the source revises.
func (l *Loader) Newest(ctx context.Context, direct client.Reader, ref appsv1.SourceRef, namespace, stack, version string) (artifact.Artifact, error) {
	sources := *l.Sources
	sources.Client = direct
	from := *l
	from.Sources = &sources
	return from.Artifact(ctx, ref, namespace, stack, version)
}

// Render fetches what a render needs, and renders it. keys decrypt what is encrypted; access is
// how a repository of charts is reached; accept, if it is set, may refuse the charts that were found.
func (l *Loader) Render(ctx context.Context, a artifact.Artifact, req stacks.Request, keys *Keys, access func(repository string) (*chart.Access, error), accept func(*stacks.Request) error) (stacks.Result, error) {
	tree, err := l.Fetcher.Fetch(ctx, a)
	if err != nil {
		return stacks.Result{}, err
	}
	defer tree.Release()
	req.Root, req.ChartLimits, req.Keys = tree.Root, l.ChartLimits, keys.Fingerprint()
	release, err := l.Charts.FetchAll(ctx, &req, access)
	if err != nil {
		return stacks.Result{}, err
	}
	defer release()
	if accept != nil {
		if err := accept(&req); err != nil {
			return stacks.Result{}, err
		}
	}
	res, err := l.Renderer.RenderDecrypting(ctx, req, l.opener(keys))
	return res, keyless(err)
}
