package cluster

import (
	"cmp"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks/state"
)

// managed are the distributions that clouds manage, by cloud.
var managed = map[string]string{"aws": "eks", "azure": "aks", "local": "kind"}

// factsOf says what the state of a cluster does.
func factsOf(c *state.Cluster) *clusterv1.ClusterFacts {
	out := &clusterv1.ClusterFacts{Name: clip(c.ID.Name), Cloud: clip(c.ID.Cloud), Region: clip(c.ID.Region), Type: clip(c.ID.Type), Distribution: clip(c.Bootstrap)}
	if c.ID.Type == state.Managed {
		out.Distribution = cmp.Or(out.Distribution, managed[c.ID.Cloud])
	}
	for name, version := range c.Versions {
		if out.Versions == nil {
			out.Versions = map[string]string{}
		}
		out.Versions[name] = clip(version)
	}
	for _, p := range c.Pools {
		out.Pools = append(out.Pools, clusterv1.NodePool{Role: clusterv1.PoolRole(p.Role), Size: clip(p.Size), Count: int32(min(p.Count, math.MaxInt32))})
	}
	return out
}

// clip keeps the beginning of a fact: whoever writes to the store may write anything.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "") }

// selecting are the labels by which clusters are selected.
var selecting = []string{clusterv1.CloudLabel, clusterv1.RegionLabel, clusterv1.TypeLabel, clusterv1.DistributionLabel}

// labelsOf are those by which clusters are selected. What can't be a label's value is left out.
func labelsOf(f *clusterv1.ClusterFacts) map[string]string {
	out := map[string]string{}
	if f == nil {
		return out
	}
	for label, value := range map[string]string{clusterv1.CloudLabel: f.Cloud, clusterv1.RegionLabel: f.Region,
		clusterv1.TypeLabel: f.Type, clusterv1.DistributionLabel: f.Distribution} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			out[label] = value
		}
	}
	return out
}

// relabel is the change of an object's labels: those that are wanted, and none of those that
// were before and are not wanted any more.
func relabel(have, want, before map[string]string) map[string]any {
	out := map[string]any{}
	for label, value := range want {
		if have[label] != value {
			out[label] = value
		}
	}
	for label, value := range before {
		if _, stays := want[label]; !stays && have[label] == value {
			out[label] = nil
		}
	}
	return out
}
