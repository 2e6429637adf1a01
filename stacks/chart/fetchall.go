package chart

import (
	"context"
	"slices"

	"github.com/ksctl/gitops/stacks"
)

// FetchAll fetches the charts that a render of req needs, as stacks.Charts names them,
// and puts them into req. access says how to reach a repository; as anybody when it is
// nil. The caller calls release when the render is done.
func (f *Fetcher) FetchAll(ctx context.Context, req *stacks.Request, access func(repository string) (*Access, error)) (release func(), err error) {
	refs, err := stacks.Charts(*req)
	if err != nil {
		return nil, err
	}
	var leases []func()
	release = func() {
		for _, give := range leases {
			give()
		}
	}
	req.Charts = slices.Grow([]stacks.FetchedChart(nil), len(refs))
	for _, ref := range refs {
		var a *Access
		if access != nil {
			if a, err = access(ref.Repository); err != nil {
				release()
				return nil, err
			}
		}
		chart, give, err := f.Fetch(ctx, ref, a)
		if err != nil {
			release()
			return nil, err
		}
		leases = append(leases, give)
		req.Charts = append(req.Charts, chart)
	}
	return release, nil
}
