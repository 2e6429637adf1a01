// Package content resolves a reference to a source, fetches the artifact, and renders its stack to
// objects.
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

// Loader fetches and renders stacks.
type Loader struct {
	// Sources resolves references to sources.
	Sources *sourceref.Resolver
	// Catalog contains the stacks that the controller ships.
	Catalog *catalog.Catalog
	// Fetcher fetches artifacts, Charts fetches charts from chart repositories, Renderer renders
	// the stacks.
	Fetcher  *artifact.Fetcher
	Charts   *chart.Fetcher
	Renderer *stacks.Renderer
	// Decrypt decrypts files; if it is nil, encrypted files are an error.
	Decrypt sops.Decrypter
	// ChartLimits bound each rendered chart.
	ChartLimits stacks.ChartLimits
}

// Artifact returns the artifact of a stack's source, for an object in a namespace.
func (l *Loader) Artifact(ctx context.Context, ref appsv1.SourceRef,
	namespace, stack, version string) (artifact.Artifact, error) {
	if ref.Kind == appsv1.CatalogKind {
		return l.Catalog.Artifact(ctx, stack, version)
	}
	return l.Sources.Resolve(ctx, ref, namespace)
}

// UncachedArtifact is Artifact, but it reads the source from the API server through direct. It is
// for decisions that a later event of the source does not correct.
func (l *Loader) UncachedArtifact(ctx context.Context, direct client.Reader, ref appsv1.SourceRef,
	namespace, stack, version string) (artifact.Artifact, error) {
	sources := *l.Sources
	sources.Client = direct
	uncached := *l
	uncached.Sources = &sources
	return uncached.Artifact(ctx, ref, namespace, stack, version)
}

// Render fetches an artifact and its charts, and renders the stack. keys decrypt encrypted files.
// access returns how to reach a chart repository. accept may be nil; it can reject the fetched
// charts before they are rendered.
func (l *Loader) Render(ctx context.Context, a artifact.Artifact, req stacks.Request, keys *Keys,
	access func(repository string) (*chart.Access, error), accept func(*stacks.Request) error) (stacks.Result, error) {
	tree, err := l.Fetcher.Fetch(ctx, a)
	if err != nil {
		return stacks.Result{}, err
	}
	defer tree.Release()
	req.Root, req.ChartLimits, req.DecryptionKeyID = tree.Root, l.ChartLimits, keys.Fingerprint()
	res, err := l.Charts.Render(ctx, req, access, func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		if accept != nil {
			if err := accept(&req); err != nil {
				return stacks.Result{}, err
			}
		}
		return l.Renderer.RenderWithDecryption(ctx, req, l.opener(keys))
	})
	return res, explainMissingKeys(err)
}
