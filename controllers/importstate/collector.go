package importstate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// gathering puts the content of several files together.
type gathering struct {
	filter   state.Filter
	clusters map[string]*state.Cluster
	creds    map[string]*state.Credentials
	// from is in which file each was found first.
	from     map[string]string
	refused  []v1alpha1.ImportedCluster
	problems []problem
	// any is true when a file had a cluster, selected or not.
	any bool
}

func newGathering(filter state.Filter) *gathering {
	return &gathering{filter: filter, clusters: map[string]*state.Cluster{}, creds: map[string]*state.Credentials{}, from: map[string]string{}}
}

// add takes what a file has. What two files say differently is taken from neither.
func (g *gathering) add(name string, f *state.File) {
	for _, c := range f.Clusters {
		g.any = true
		if g.filter.Fits(c.ID) {
			g.addCluster(name, c)
		}
	}
	for _, c := range f.Credentials {
		at := "credentials of " + c.Cloud
		first, twice := g.from[at]
		switch {
		case !twice:
			g.from[at], g.creds[c.Cloud] = name, c
		case g.creds[c.Cloud] == nil || !state.Equal(g.creds[c.Cloud].JSON(), c.JSON()):
			delete(g.creds, c.Cloud)
			g.problems = append(g.problems, problemOf(fail(InvalidStateReason, "%s: %s has other credentials of %s: leave one of the two out", name, first, c.Cloud)))
		}
	}
}

func (g *gathering) addCluster(name string, c *state.Cluster) {
	key := c.ID.Key()
	refuse := func(why string) {
		row := rowOf(c, record{})
		row.Action, row.Message = v1alpha1.StateInvalid, statestore.Clip(statestore.Plain(why, ""), 300)
		g.refused = append(g.refused, row)
	}
	first, twice := g.from[key]
	problems := c.Check()
	switch {
	case len(problems) > 0:
		refuse(name + ": " + problems[0].Error())
	case !twice:
		g.from[key], g.clusters[key] = name, c
	case g.clusters[key] == nil || !state.Equal(g.clusters[key].JSON(), c.JSON()):
		delete(g.clusters, key)
		refuse(fmt.Sprintf("%s and %s have different states of it: leave one of the two out", first, name))
	}
}

// wishes are all that was found, and credentials of the clouds that clusters were selected
// in; of all clouds where there is no cluster, and every file could be read.
func (g *gathering) wishes(credentials bool) wishes {
	out := wishes{refused: g.refused, problems: g.problems}
	clouds := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(g.clusters)) {
		out.clusters = append(out.clusters, g.clusters[key])
		clouds[g.clusters[key].ID.Cloud] = true
	}
	if !credentials {
		return out
	}
	alone := !g.any && len(g.problems) == 0
	for _, cloud := range slices.Sorted(maps.Keys(g.creds)) {
		if clouds[cloud] || alone && (g.filter.Cloud == "" || g.filter.Cloud == cloud) {
			out.credentials = append(out.credentials, g.creds[cloud])
		}
	}
	return out
}
