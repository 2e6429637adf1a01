package importstate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// collector merges the content of several files.
type collector struct {
	filter      state.Filter
	clusters    map[string]*state.Cluster
	credentials map[string]*state.Credentials
	// firstFile has the file in which each entry was found first.
	firstFile map[string]string
	refused   []v1alpha1.ImportedCluster
	problems  []*reconcile.StepError
	// foundCluster is true if a file contains a cluster, selected or not.
	foundCluster bool
}

func newCollector(filter state.Filter) *collector {
	return &collector{filter: filter, clusters: map[string]*state.Cluster{},
		credentials: map[string]*state.Credentials{}, firstFile: map[string]string{}}
}

// add adds the content of a file. An entry that differs between two files is used from neither.
func (g *collector) add(name string, f *state.File) {
	for _, c := range f.Clusters {
		g.foundCluster = true
		if g.filter.Matches(c.ID) {
			g.addCluster(name, c)
		}
	}
	for _, c := range f.Credentials {
		id := "credentials of " + c.Cloud
		first, found := g.firstFile[id]
		switch {
		case !found:
			g.firstFile[id], g.credentials[c.Cloud] = name, c
		case g.credentials[c.Cloud] == nil || !state.Equal(g.credentials[c.Cloud].JSON(), c.JSON()):
			delete(g.credentials, c.Cloud)
			message := first + " has different credentials for " + c.Cloud + ": remove one of the two"
			if first == name {
				message = "the file has different credentials for " + c.Cloud + ": remove all but one"
			}
			g.problems = append(g.problems,
				problemOf(reconcile.NewTerminalError(v1alpha1.InvalidStateReason, "%s: %s", name, message)))
		}
	}
}

func (g *collector) addCluster(name string, c *state.Cluster) {
	key := c.ID.Key()
	reject := func(message string) {
		row := newRow(c, v1alpha1.ImportedCluster{})
		row.Action, row.Message = v1alpha1.StateInvalid, statestore.Truncate(statestore.Sanitize(message, ""), 300)
		g.refused = append(g.refused, row)
	}
	first, found := g.firstFile[key]
	problems := c.Validate()
	switch {
	case len(problems) > 0:
		reject(name + ": " + problems[0].Error())
	case !found:
		g.firstFile[key], g.clusters[key] = name, c
	case g.clusters[key] == nil || !state.Equal(g.clusters[key].JSON(), c.JSON()):
		delete(g.clusters, key)
		if first == name {
			reject(name + " has different states of the cluster: remove all but one")
		} else {
			reject(fmt.Sprintf("%s and %s have different states of the cluster: remove one of the two", first, name))
		}
	}
}

// desired returns the clusters, and the credentials of the clouds of these clusters. If the files
// contain no cluster and all of them are readable, it returns the credentials of all clouds.
func (g *collector) desired(credentials bool) desired {
	out := desired{invalid: g.refused, problems: g.problems}
	clouds := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(g.clusters)) {
		out.clusters = append(out.clusters, g.clusters[key])
		clouds[g.clusters[key].ID.Cloud] = true
	}
	if !credentials {
		return out
	}
	onlyCredentials := !g.foundCluster && len(g.problems) == 0
	for _, cloud := range slices.Sorted(maps.Keys(g.credentials)) {
		if clouds[cloud] || onlyCredentials && (g.filter.Cloud == "" || g.filter.Cloud == cloud) {
			out.credentials = append(out.credentials, g.credentials[cloud])
		}
	}
	return out
}
