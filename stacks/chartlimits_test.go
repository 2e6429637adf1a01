package stacks_test

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// TestChartLimits checks each limit for charts in the source and for fetched charts. A chart within
// the limits renders with the same digest.
func TestChartLimits(t *testing.T) {
	vendored := stacks.Request{Root: writeTree(t,
		storeChart("1.2.3",
			map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: store, values: {size: 1}}}")})),
		Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
	fetched := fetchRequest(t, storeDigest)
	fetch(t, &fetched, storeChart("1.2.3", nil))
	size := 0
	for _, text := range storeChart("1.2.3", nil) {
		size += len(text)
	}
	files := len(storeChart("1.2.3", nil))
	for name, req := range map[string]stacks.Request{"in the source": vendored, "fetched": fetched} {
		first, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for want, limits := range map[string]stacks.ChartLimits{
			"":                  {Bytes: int64(size), Files: files},
			"--chart-max-bytes": {Bytes: int64(size) - 1},
			"--chart-max-files": {Files: files - 1},
		} {
			req.ChartLimits = limits
			result, err := stacks.Render(t.Context(), req)
			if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, %+v: %v", name, limits, err)
			}
			if want == "" && (err != nil || result.Digest != first.Digest) {
				t.Errorf("%s, %+v: %v: a chart within the limits must render with the same digest", name, limits, err)
			}
		}
	}
}
