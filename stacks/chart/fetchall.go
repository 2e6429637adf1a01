package chart

import (
	"context"

	"github.com/ksctl/gitops/stacks"
)

// FetchAll fetches the charts that a render of req needs, as listed by stacks.Charts, and sets
// req.Charts. accessFor returns the Access for the address of a repository; a nil accessFor means
// no credentials. The caller calls release when the render is done.
func (f *Fetcher) FetchAll(ctx context.Context, req *stacks.Request, accessFor func(repository string) (*Access, error)) (release func(), err error) {
	refs, err := stacks.RequiredCharts(*req)
	if err != nil {
		return nil, err
	}
	var releases []func()
	release = func() {
		for _, releaseChart := range releases {
			releaseChart()
		}
	}
	req.Charts = make([]stacks.FetchedChart, 0, len(refs))
	for _, ref := range refs {
		var a *Access
		if accessFor != nil {
			if a, err = accessFor(ref.Repository); err != nil {
				release()
				return nil, err
			}
		}
		chart, releaseChart, err := f.Fetch(ctx, ref, a)
		if err != nil {
			release()
			return nil, err
		}
		releases = append(releases, releaseChart)
		req.Charts = append(req.Charts, chart)
	}
	return release, nil
}
