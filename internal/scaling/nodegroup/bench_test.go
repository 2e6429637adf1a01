package nodegroup

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// manyClusters returns 10 clusters with 10 pools and 1,000 workers each.
func manyClusters() []*Cluster {
	pool := poolOfSize("t3.medium")
	node, _ := Template(&pool, nil)
	raw, _ := MarshalNode(node)
	var out []*Cluster
	for n := range 10 {
		c := &Cluster{Key: types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("cluster-%d", n)},
			Mode: clusterv1.ScalingAuto}
		for p := range 10 {
			name := fmt.Sprintf("pool-%d", p)
			c.Groups = append(c.Groups,
				Group{ID: GroupID(c.Key, name), Name: name, Max: 200, Target: 100, Template: raw})
			for range 100 {
				w := joinedWorker(len(c.Workers), name)
				w.Node = c.Key.Name + w.Node
				w.ProviderID = "k3s://" + w.Node
				c.Workers = append(c.Workers, w)
			}
		}
		out = append(out, c)
	}
	return out
}

// BenchmarkReads measures each read over gRPC and TLS on loopback, with 100 pools and 10,000 nodes
// in 10 clusters. It reports the median and the 99th percentile in milliseconds.
func BenchmarkReads(b *testing.B) {
	clusters := manyClusters()
	r := newServerTest(b, clusters...).start()
	ctx := b.Context()
	var clients []externalgrpc.CloudProviderClient
	for _, c := range clusters {
		clients = append(clients, r.connectAs(c.Key))
	}
	of := func(i int) (externalgrpc.CloudProviderClient, *Cluster, string) {
		c := clusters[i%len(clusters)]
		return clients[i%len(clients)], c, c.Groups[i/len(clusters)%len(c.Groups)].ID
	}
	for name, ask := range map[string]func(i int) error{
		"Refresh": func(i int) error {
			c, _, _ := of(i)
			_, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{})
			return err
		},
		"NodeGroups": func(i int) error {
			c, _, _ := of(i)
			_, err := c.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
			return err
		},
		"NodeGroupForNode": func(i int) error {
			c, in, _ := of(i)
			w := in.Workers[i*7919%len(in.Workers)]
			_, err := c.NodeGroupForNode(ctx,
				&externalgrpc.NodeGroupForNodeRequest{Node: grpcNode(Node{Name: w.Node, ProviderID: w.ProviderID})})
			return err
		},
		"NodeGroupTargetSize": func(i int) error {
			c, _, id := of(i)
			_, err := c.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
			return err
		},
		"NodeGroupNodes": func(i int) error {
			c, _, id := of(i)
			_, err := c.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: id})
			return err
		},
		"NodeGroupTemplateNodeInfo": func(i int) error {
			c, _, id := of(i)
			_, err := c.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
			return err
		},
		"NodeGroupGetOptions": func(i int) error {
			c, _, id := of(i)
			_, err := c.NodeGroupGetOptions(ctx, &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: id})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for i := range clients { // connect first
				if err := ask(i); err != nil {
					b.Fatal(err)
				}
			}
			var all []time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if err := ask(i); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(start))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkPublish measures the publication of a cluster with 1,000 workers.
func BenchmarkPublish(b *testing.B) {
	c := manyClusters()[0]
	s := NewClusters()
	b.ReportAllocs()
	for b.Loop() {
		s.Publish(c)
	}
}
