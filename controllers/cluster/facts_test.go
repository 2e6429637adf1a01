package cluster

import (
	"maps"
	"os"
	"testing"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks/state"
)

func TestFactsAndLabels(t *testing.T) {
	for file, want := range map[string]struct {
		labels map[string]string
		pools  int
	}{
		"v1_azure_ha_k3s.json": {map[string]string{clusterv1.CloudLabel: "azure", clusterv1.TypeLabel: "ha",
			clusterv1.DistributionLabel: "k3s"}, 4},
		"v2_aws_managed.json": {map[string]string{clusterv1.CloudLabel: "aws", clusterv1.TypeLabel: "managed",
			clusterv1.DistributionLabel: "eks"}, 0},
	} {
		data, err := os.ReadFile("../../stacks/state/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := state.Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		facts := factsOf(f.Clusters[0])
		labels := labelsOf(facts)
		if labels[clusterv1.RegionLabel] == "" {
			t.Errorf("%s: no region label", file)
		}
		delete(labels, clusterv1.RegionLabel)
		if !maps.Equal(labels, want.labels) || len(facts.Pools) != want.pools {
			t.Errorf("%s: labels %v, %d pools, want %v and %d", file, labels, len(facts.Pools), want.labels, want.pools)
		}
	}
	if labels := labelsOf(&clusterv1.ClusterFacts{Cloud: "no label's value", Region: "x"}); len(labels) != 1 {
		t.Errorf("got labels %v, want only the region", labels)
	}
}

func TestLabelPatch(t *testing.T) {
	have := map[string]string{"mine": "stays", "same": "1", "old": "1", "changed": "by hand"}
	got := labelPatch(have, map[string]string{"same": "1", "new": "2"}, map[string]string{"old": "1", "changed": "0"})
	if want := map[string]any{"new": "2", "old": nil}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
