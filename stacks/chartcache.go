package stacks

import (
	"context"

	"github.com/ksctl/gitops/stacks/internal/helm"
)

// DefaultChartCacheBytes is the usual size of a ChartCache in bytes.
const DefaultChartCacheBytes = 32 << 20

// ChartCache keeps loaded charts between renders, the most recently used ones. Each render still
// reads all files of a chart, and uses a kept chart only if they are the same. The result of a
// render does not depend on the cache. It is safe for concurrent use.
type ChartCache struct{ charts *helm.Cache }

// NewChartCache returns an empty cache. Its charts take about as many bytes of memory at most.
func NewChartCache(bytes int64) *ChartCache { return &ChartCache{charts: helm.NewCache(bytes)} }

// Render is like the function Render, with the charts of the cache. It does not keep charts of a
// request with decrypted files, which may be part of a chart.
func (c *ChartCache) Render(ctx context.Context, req Request) (Result, error) {
	loader := helm.Loader{Limits: helm.Limits(req.ChartLimits), Cache: c.charts}
	if len(req.Decrypted) > 0 {
		loader.Cache = nil
	}
	return renderWith(ctx, req, loader)
}
