package state

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/ksctl/gitops/stacks/problem"
)

// Clouds that ksctl makes clusters in: the first release also in Civo.
var Clouds = []string{"aws", "azure", "civo", "local"}

var types = []string{HA, SelfManaged, Managed}

// Patterns of what names a cluster. That of the name is ksctl's; the others are what
// the keys of its store can hold, whose parts are separated by dots.
var (
	clusterName = regexp.MustCompile(`^[a-z][-a-z0-9]{0,48}[a-z0-9]$`)
	cloudName   = regexp.MustCompile(`^[a-z][-a-z0-9]{0,31}$`)
	regionName  = regexp.MustCompile(`^[A-Za-z0-9]([-_A-Za-z0-9]{0,62}[A-Za-z0-9])?$`)
)

func valid(pattern *regexp.Regexp, s string) bool { return pattern.MatchString(s) }

// Check says what is wrong with a document, in the order of its fields; nil when ksctl
// could work with it. Each problem names a JSON pointer in the document.
func (c *Cluster) Check() []*problem.Error {
	var out []*problem.Error
	name := func(field, value string, known []string) {
		if slices.Contains(known, value) {
			return
		}
		e := wrong("/"+field, "%s; ksctl knows %s", said(value), list(known))
		e.Suggestion = problem.Nearest(value, known)
		out = append(out, e)
	}
	if !valid(clusterName, c.ID.Name) {
		out = append(out, wrong("/cluster_name", "%s; want 2 to 50 of a-z, 0-9 and -, beginning with a letter and not ending with -", said(c.ID.Name)))
	}
	if !valid(regionName, c.ID.Region) {
		out = append(out, wrong("/region", "%s; want the name of a region, and LOCAL for the cloud local", said(c.ID.Region)))
	}
	name("cloud_provider", c.ID.Cloud, Clouds)
	name("cluster_type", c.ID.Type, types)
	if infra := at(c.tree(), "cloud_infrastructure_state"); infra != nil && at(infra, c.ID.Cloud) == nil && slices.Contains(Clouds, c.ID.Cloud) {
		out = append(out, wrong("/cloud_infrastructure_state", "it says nothing of %s, which the cluster is in", c.ID.Cloud))
	}
	return out
}

// said shows a value that names something, which is no secret, but may be anything.
func said(value string) string {
	if value == "" {
		return "it is empty"
	}
	return fmt.Sprintf("it is %.60q", value)
}

func list(words []string) string {
	out := ""
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			out += " and "
		default:
			out += ", "
		}
		out += w
	}
	return out
}

// Filter selects clusters, in ksctl's own words. What is empty fits everything.
type Filter struct {
	Cloud, ClusterType, ClusterName, Region string
}

// Fits is true for a cluster that the filter selects.
func (f Filter) Fits(id ID) bool {
	fits := func(want, got string) bool { return want == "" || want == got }
	return fits(f.Cloud, id.Cloud) && fits(f.ClusterType, id.Type) && fits(f.ClusterName, id.Name) && fits(f.Region, id.Region)
}
