package state

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Clouds are the clouds that ksctl creates clusters in; Civo only in v1.
var Clouds = []string{"aws", "azure", "civo", "local"}

var clusterTypes = []string{HA, SelfManaged, Managed}

// Patterns of the parts of an ID. The pattern of the name is that of ksctl. The others exclude
// dots, which separate the parts of a key in the store.
var (
	clusterName = regexp.MustCompile(`^[a-z][-a-z0-9]{0,48}[a-z0-9]$`)
	cloudName   = regexp.MustCompile(`^[a-z][-a-z0-9]{0,31}$`)
	regionName  = regexp.MustCompile(`^[A-Za-z0-9]([-_A-Za-z0-9]{0,62}[A-Za-z0-9])?$`)
)

// Validate returns the problems of a document, in the order of its fields; nil if ksctl can use it.
// Each problem has the JSON pointer of the value in the document.
func (c *Cluster) Validate() []*problem.Error {
	var problems []*problem.Error
	checkSupported := func(field, value string, supported []string) {
		if slices.Contains(supported, value) {
			return
		}
		e := pointerError("/"+field, "%s; ksctl supports %s", describeValue(value), joinWords(supported))
		e.Suggestion = problem.Nearest(value, supported)
		problems = append(problems, e)
	}
	if !clusterName.MatchString(c.ID.Name) {
		problems = append(problems,
			pointerError("/cluster_name",
				"%s; want 2 to 50 characters of a-z, 0-9 and -, starting with a letter and not ending with -",
				describeValue(c.ID.Name)))
	}
	if !regionName.MatchString(c.ID.Region) {
		problems = append(problems,
			pointerError("/region", "%s; want the name of a region, or LOCAL for the cloud local",
				describeValue(c.ID.Region)))
	}
	checkSupported("cloud_provider", c.ID.Cloud, Clouds)
	checkSupported("cluster_type", c.ID.Type, clusterTypes)
	if c.ID.Cloud == "local" && slices.Contains(clusterTypes, c.ID.Type) && c.ID.Type != Managed {
		problems = append(problems,
			pointerError("/cluster_type", "%s; the cloud local has only managed clusters", describeValue(c.ID.Type)))
	}
	if infra := lookup(c.tree(), "cloud_infrastructure_state"); infra != nil && lookup(infra, c.ID.Cloud) == nil &&
		slices.Contains(Clouds, c.ID.Cloud) {
		problems = append(problems,
			pointerError("/cloud_infrastructure_state", "no entry for %s, the cloud_provider of the cluster",
				c.ID.Cloud))
	}
	return problems
}

// describeValue quotes a value for a message, truncated: names are no secrets, but the file can
// contain any text.
func describeValue(value string) string {
	if value == "" {
		return "the value is empty"
	}
	return fmt.Sprintf("the value is %.60q", value)
}

// joinWords joins at least two words.
func joinWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Filter selects clusters, with the field names of ksctl. An empty field matches any value.
type Filter struct {
	Cloud, ClusterType, ClusterName, Region string
}

// Matches is true if the filter selects a cluster.
func (f Filter) Matches(id ID) bool {
	matches := func(want, got string) bool { return want == "" || want == got }
	return matches(f.Cloud, id.Cloud) && matches(f.ClusterType, id.Type) && matches(f.ClusterName, id.Name) &&
		matches(f.Region, id.Region)
}
