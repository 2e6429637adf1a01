// Package fakeautoscaler simulates Cluster Autoscaler as a client of the provider externalgrpc, as
// far as node groups are concerned. In each loop it observes the cluster, requests machines for
// pending pods, and requests the deletion of unneeded nodes, in the order of calls observed from
// version 1.36.1.
package fakeautoscaler

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// Taints and annotations of Cluster Autoscaler on nodes.
const (
	ToBeDeletedTaint   = "ToBeDeletedByClusterAutoscaler"
	DisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// callTimeout is the timeout of a call: three times that of Cluster Autoscaler. A call that times
// out may have been handled, so that on a slow machine the same machine would be requested twice.
const callTimeout = 30 * time.Second

// Autoscaler simulates Cluster Autoscaler for one cluster.
type Autoscaler struct {
	// Cluster is a client of the scaled cluster.
	Cluster client.Client
	// ScaleDown enables the deletion of nodes without pods.
	ScaleDown bool

	conn *grpc.ClientConn
	api  externalgrpc.CloudProviderClient

	mu sync.Mutex // of calls and writeErrors; the other fields belong to the loop
	// calls are counted by method. writeErrors are the errors of write calls.
	calls       map[string]int
	writeErrors []error
	// backoff is the time until when nothing is requested for a group.
	backoff map[string]time.Time
	// started is true when the nodes that an earlier process marked are unmarked.
	started bool
}

// Dial connects to a node group server with the credentials of an autoscaler's Secret.
func Dial(address string, secret map[string][]byte, cluster client.Client) (*Autoscaler, error) {
	pair, err := tls.X509KeyPair(secret["tls.crt"], secret["tls.key"])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret["ca.crt"]) {
		return nil, errors.New("no ca.crt")
	}
	a := &Autoscaler{Cluster: cluster, ScaleDown: true, calls: map[string]int{}, backoff: map[string]time.Time{}}
	a.conn, err = grpc.NewClient(address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
			RootCAs: roots, MinVersion: tls.VersionTLS12})),
		grpc.WithUnaryInterceptor(a.count))
	if err != nil {
		return nil, err
	}
	a.api = externalgrpc.NewCloudProviderClient(a.conn)
	return a, nil
}

// Close closes the connection.
func (a *Autoscaler) Close() error { return a.conn.Close() }

// API returns the client for single calls.
func (a *Autoscaler) API() externalgrpc.CloudProviderClient { return a.api }

// Calls returns the calls since its last invocation, by method.
func (a *Autoscaler) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = map[string]int{}
	return calls
}

// WriteErrors returns all errors of write calls.
func (a *Autoscaler) WriteErrors() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writeErrors)
}

func (a *Autoscaler) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	a.mu.Lock()
	a.calls[path.Base(method)]++
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return invoke(ctx, method, req, reply, cc, opts...)
}

// Run runs loops until ctx is done. An error ends only its own loop. Like in Cluster Autoscaler,
// the first loop unmarks nodes that an earlier process marked.
func (a *Autoscaler) Run(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		_ = a.Loop(ctx) //nolint:errcheck // the next loop starts from scratch
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// group is a node group as observed by a loop.
type group struct {
	*externalgrpc.NodeGroup
	target   int32
	nodes    []*corev1.Node
	failed   []*externalgrpc.Instance
	template *corev1.Node
}

// Loop runs one loop: it observes the groups, deletes failed instances, scales up for pending pods,
// and scales down only if there is nothing else to do.
func (a *Autoscaler) Loop(ctx context.Context) error {
	if _, err := a.api.Refresh(ctx, &externalgrpc.RefreshRequest{}); err != nil {
		return err
	}
	groups, err := a.observe(ctx)
	if err != nil {
		return err
	}
	if err := a.unmarkAtStart(ctx, groups); err != nil {
		return err
	}
	if a.deleteFailed(ctx, groups) {
		return nil
	}
	var pods corev1.PodList
	if err := a.Cluster.List(ctx, &pods); err != nil {
		return err
	}
	if pending := pendingPods(pods.Items); len(pending) > 0 {
		return a.scaleUp(ctx, groups, pods.Items, pending)
	}
	if a.ScaleDown {
		return a.scaleDown(ctx, groups, pods.Items)
	}
	return nil
}

// observe lists the groups and asks for the group of each node, like each loop of Cluster
// Autoscaler.
func (a *Autoscaler) observe(ctx context.Context) ([]*group, error) {
	answer, err := a.api.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
	if err != nil {
		return nil, nil //nolint:nilerr // like Cluster Autoscaler, continue without groups
	}
	var nodes corev1.NodeList
	if err := a.Cluster.List(ctx, &nodes); err != nil {
		return nil, err
	}
	byID := map[string]*group{}
	var groups []*group
	for _, g := range answer.NodeGroups {
		x := &group{NodeGroup: g}
		groups, byID[g.Id] = append(groups, x), x
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		of, err := a.api.NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: grpcNode(n)})
		if err != nil {
			return nil, err
		}
		if g := byID[of.GetNodeGroup().GetId()]; g != nil {
			g.nodes = append(g.nodes, n)
		}
	}
	for _, g := range groups {
		if err := a.observeGroup(ctx, g); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

func (a *Autoscaler) observeGroup(ctx context.Context, g *group) error {
	size, err := a.api.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: g.Id})
	if err != nil {
		return err // the whole loop ends
	}
	g.target = size.TargetSize
	instances, err := a.api.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: g.Id})
	if err != nil {
		return err
	}
	for _, x := range instances.Instances {
		if x.GetStatus().GetErrorInfo().GetErrorCode() != "" {
			g.failed = append(g.failed, x)
		}
	}
	options, err := a.api.NodeGroupGetOptions(ctx, &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: g.Id,
		Defaults: &externalgrpc.NodeGroupAutoscalingOptions{ScaleDownUtilizationThreshold: 0.5}})
	if err == nil && options.GetNodeGroupAutoscalingOptions() != nil {
		return fmt.Errorf("group %s has options: with options, MaxNodeStartupTime would be 0", g.Id)
	}
	info, err := a.api.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: g.Id})
	if err != nil {
		return err
	}
	g.template = &corev1.Node{}
	if err := g.template.Unmarshal(info.NodeBytes); err != nil || len(info.NodeBytes) == 0 {
		return fmt.Errorf("group %s has no template, which crashes Cluster Autoscaler: %w", g.Id, err)
	}
	return nil
}

func grpcNode(n *corev1.Node) *externalgrpc.ExternalGrpcNode {
	return &externalgrpc.ExternalGrpcNode{ProviderID: n.Spec.ProviderID, Name: n.Name, Labels: n.Labels,
		Annotations: n.Annotations}
}

// recordError records the error of a write call, and returns it.
func (a *Autoscaler) recordError(err error) error {
	if err != nil {
		a.mu.Lock()
		a.writeErrors = append(a.writeErrors, err)
		a.mu.Unlock()
	}
	return err
}

// deleteFailed deletes instances that could not be created, and backs off.
func (a *Autoscaler) deleteFailed(ctx context.Context, groups []*group) bool {
	did := false
	for _, g := range groups {
		if len(g.failed) == 0 {
			continue
		}
		did = true
		req := &externalgrpc.NodeGroupDeleteNodesRequest{Id: g.Id}
		for _, x := range g.failed {
			req.Nodes = append(req.Nodes, &externalgrpc.ExternalGrpcNode{ProviderID: x.Id, Name: x.Id,
				Annotations: map[string]string{"k8s.io/cluster-autoscaler/fake-node-reason": "create-error"}})
		}
		_, err := a.api.NodeGroupDeleteNodes(ctx, req)
		_ = a.recordError(err) //nolint:errcheck // the error is recorded
		a.backoff[g.Id] = time.Now().Add(5 * time.Second)
	}
	return did
}
