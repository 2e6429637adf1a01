package setup

import (
	"path/filepath"

	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/chart"
)

// newContent returns the loader of the content of stacks. All reconcilers share one loader, and
// with it the disk caches and the render processes.
func (c *Controllers) newContent() (*content.Loader, error) {
	fetcher, err := artifact.NewFetcher(artifact.Options{Dir: filepath.Join(c.opts.StoragePath, "fetched"),
		CacheBytes: c.opts.ArtifactCacheBytes, Limits: c.opts.ArtifactLimits, Timeout: c.opts.ArtifactTimeout})
	if err != nil {
		return nil, err
	}
	charts, err := chart.NewFetcher(chart.Options{Dir: filepath.Join(c.opts.StoragePath, "charts"),
		CacheBytes: c.opts.ChartCacheBytes,
		IndexBytes: c.opts.ChartIndexBytes, Limits: c.opts.ArtifactLimits, Timeout: c.opts.ArtifactTimeout, Key: c.key})
	if err != nil {
		return nil, err
	}
	renderer := stacks.NewRenderer(stacks.RendererOptions{CacheBytes: c.opts.RenderCacheBytes, Render: c.opts.Render,
		OnRender: c.metrics.Rendered})
	return &content.Loader{
		Sources: &sourceref.Resolver{Client: c.mgr.GetClient(), Serves: c.discovery.Serves,
			NoCrossNamespace: c.opts.NoCrossNamespaceRefs},
		Catalog: catalog.New(catalog.Options{Limits: c.opts.ArtifactLimits, URL: c.opts.CatalogURL,
			Insecure: c.opts.CatalogInsecure}),
		Fetcher: fetcher, Charts: charts, Renderer: renderer, Decrypt: c.opts.Decrypt, ChartLimits: c.opts.ChartLimits,
	}, nil
}
