package cluster

import (
	"cmp"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks/state"
)

// managedDistributions are the distributions of managed clusters, by cloud.
var managedDistributions = map[string]string{"aws": "eks", "azure": "aks", "local": "kind"}

// factsOf returns the facts in the state of a cluster.
func factsOf(c *state.Cluster) *clusterv1.ClusterFacts {
	out := &clusterv1.ClusterFacts{Name: truncate(c.ID.Name), Cloud: truncate(c.ID.Cloud),
		Region: truncate(c.ID.Region), Type: truncate(c.ID.Type), Distribution: truncate(c.Bootstrap)}
	if c.ID.Type == state.Managed {
		out.Distribution = cmp.Or(out.Distribution, managedDistributions[c.ID.Cloud])
	}
	for name, version := range c.Versions {
		if out.Versions == nil {
			out.Versions = map[string]string{}
		}
		out.Versions[name] = truncate(version)
	}
	for _, p := range c.Pools {
		out.Pools = append(out.Pools, clusterv1.NodePool{Role: clusterv1.PoolRole(p.Role), Size: truncate(p.Size),
			Count: int32(min(p.Count, math.MaxInt32))})
	}
	return out
}

// truncate shortens a fact to 64 bytes, because writers of the store are not trusted.
func truncate(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "") }

// selectorLabels are the labels that cluster selectors use.
var selectorLabels = []string{clusterv1.CloudLabel, clusterv1.RegionLabel, clusterv1.TypeLabel,
	clusterv1.DistributionLabel}

// labelsOf returns the values of selectorLabels. Facts that are not valid label values are omitted.
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

// labelPatch returns the changes to an object's labels: wanted labels are set, and labels of before
// that are no longer wanted are removed, unless a user changed their value.
func labelPatch(have, want, before map[string]string) map[string]any {
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
