// Package casim plays Cluster Autoscaler's side of the provider externalgrpc, as far as what
// it does to node groups goes: it looks at a cluster in loops, asks for machines that pending pods
// need, and for the deletion of nodes that nobody needs, in the order of calls that 1.36.1 was
// seen to have.
package casim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// What Cluster Autoscaler puts on nodes.
const (
	ToBeDeletedTaint   = "ToBeDeletedByClusterAutoscaler"
	DisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// callTime is how long a call may take: three times what Cluster Autoscaler waits. One that is given up
// may have been heard, and a machine that is slow at times would be asked for twice.
const callTime = 30 * time.Second

// Autoscaler plays Cluster Autoscaler for one cluster.
type Autoscaler struct {
	// Cluster that is scaled.
	Cluster client.Client
	// ProvisionTime is --max-node-provision-time.
	ProvisionTime time.Duration
	// MayDelete is true for one that deletes nodes without pods.
	MayDelete bool

	conn *grpc.ClientConn
	api  externalgrpc.CloudProviderClient

	mu sync.Mutex
	// Calls by method, Refusals as they were answered.
	calls    map[string]int
	refusals []error
	// asked is since when a group has machines that have not come.
	asked map[string]time.Time
	// backoff is until when nothing is asked for a group.
	backoff map[string]time.Time
	// started is true when nodes that an earlier process marked are used again.
	started bool
}

// Dial speaks with a node group server, with what the Secret of an autoscaler has.
func Dial(address string, secret map[string][]byte, cluster client.Client) (*Autoscaler, error) {
	pair, err := tls.X509KeyPair(secret["tls.crt"], secret["tls.key"])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret["ca.crt"]) {
		return nil, errors.New("no ca.crt")
	}
	a := &Autoscaler{Cluster: cluster, ProvisionTime: time.Hour, MayDelete: true, calls: map[string]int{}, asked: map[string]time.Time{}, backoff: map[string]time.Time{}}
	a.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12})),
		grpc.WithUnaryInterceptor(a.count))
	if err != nil {
		return nil, err
	}
	a.api = externalgrpc.NewCloudProviderClient(a.conn)
	return a, nil
}

// Close ends the connection.
func (a *Autoscaler) Close() error { return a.conn.Close() }

// API is for calls of one's own.
func (a *Autoscaler) API() externalgrpc.CloudProviderClient { return a.api }

// Calls since the last time that it was asked.
func (a *Autoscaler) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = map[string]int{}
	return calls
}

// Refusals are all errors of writes so far.
func (a *Autoscaler) Refusals() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]error(nil), a.refusals...)
}

func (a *Autoscaler) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	a.mu.Lock()
	a.calls[method[len("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"):]]++
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return invoke(ctx, method, req, reply, cc, opts...)
}

// Run loops until ctx ends. A loop that fails ends itself alone, and nodes that an earlier process
// marked are used again, as with Cluster Autoscaler.
func (a *Autoscaler) Run(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		_ = a.Loop(ctx) //nolint:errcheck // the next one begins anew
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// group is what a loop knows of a node group.
type group struct {
	*externalgrpc.NodeGroup
	target   int32
	nodes    []*corev1.Node
	failed   []*externalgrpc.Instance
	template *corev1.Node
}

// Loop is one loop: what there is, what is not as it should be, what is missing, and only when
// nothing is, what is too much.
func (a *Autoscaler) Loop(ctx context.Context) error {
	if _, err := a.api.Refresh(ctx, &externalgrpc.RefreshRequest{}); err != nil {
		return err
	}
	groups, err := a.look(ctx)
	if err != nil {
		return err
	}
	if err := a.startAnew(ctx, groups); err != nil {
		return err
	}
	if a.dropFailed(ctx, groups) {
		return nil
	}
	for _, g := range groups {
		if a.timedOut(ctx, g) {
			return nil
		}
	}
	pending, err := a.pending(ctx)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		return a.scaleUp(ctx, groups, pending)
	}
	if a.MayDelete {
		return a.scaleDown(ctx, groups)
	}
	return nil
}

// look asks for the groups and whose each node is, as each loop does.
func (a *Autoscaler) look(ctx context.Context) ([]*group, error) {
	answer, err := a.api.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
	if err != nil {
		return nil, nil //nolint:nilerr // it sees no groups then, and stays well
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
		if err := a.examine(ctx, g); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

func (a *Autoscaler) examine(ctx context.Context, g *group) error {
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
	options, err := a.api.NodeGroupGetOptions(ctx, &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: g.Id, Defaults: &externalgrpc.NodeGroupAutoscalingOptions{ScaleDownUtilizationThreshold: 0.5}})
	if err == nil && options.GetNodeGroupAutoscalingOptions() != nil {
		return fmt.Errorf("group %s has options of its own: MaxNodeStartupTime is 0 then", g.Id)
	}
	info, err := a.api.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: g.Id})
	if err != nil {
		return err
	}
	g.template = &corev1.Node{}
	if err := g.template.Unmarshal(info.NodeBytes); err != nil || len(info.NodeBytes) == 0 {
		return fmt.Errorf("group %s has no template, of which Cluster Autoscaler dies: %w", g.Id, err)
	}
	return nil
}

func grpcNode(n *corev1.Node) *externalgrpc.ExternalGrpcNode {
	return &externalgrpc.ExternalGrpcNode{ProviderID: n.Spec.ProviderID, Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}
}

// refused keeps an error of a write.
func (a *Autoscaler) refused(err error) error {
	if err != nil {
		a.mu.Lock()
		a.refusals = append(a.refusals, err)
		a.mu.Unlock()
	}
	return err
}

// dropFailed deletes instances that could not be made, and backs off.
func (a *Autoscaler) dropFailed(ctx context.Context, groups []*group) bool {
	did := false
	for _, g := range groups {
		if len(g.failed) == 0 {
			continue
		}
		did = true
		req := &externalgrpc.NodeGroupDeleteNodesRequest{Id: g.Id}
		for _, x := range g.failed {
			req.Nodes = append(req.Nodes, &externalgrpc.ExternalGrpcNode{ProviderID: x.Id, Name: x.Id, Annotations: map[string]string{"k8s.io/cluster-autoscaler/fake-node-reason": "create-error"}})
		}
		_, err := a.api.NodeGroupDeleteNodes(ctx, req)
		_ = a.refused(err) //nolint:errcheck // it is kept
		a.mu.Lock()
		a.backoff[g.Id] = time.Now().Add(5 * time.Second)
		a.mu.Unlock()
	}
	return did
}

// timedOut gives up machines that have not come in time.
func (a *Autoscaler) timedOut(ctx context.Context, g *group) bool {
	a.mu.Lock()
	missing := g.target - int32(len(g.nodes)) - int32(len(g.failed))
	if missing <= 0 {
		delete(a.asked, g.Id)
	} else if a.asked[g.Id].IsZero() {
		a.asked[g.Id] = time.Now()
	}
	late := missing > 0 && time.Since(a.asked[g.Id]) > a.ProvisionTime
	if late {
		delete(a.asked, g.Id)
		a.backoff[g.Id] = time.Now().Add(5 * time.Second)
	}
	a.mu.Unlock()
	if late {
		_, err := a.api.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: g.Id, Delta: -missing})
		_ = a.refused(err) //nolint:errcheck // it is kept
	}
	return late
}
