package kwok

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

const (
	// ClusterLabel marks the nodes of this provisioner. Its value is the name of the cluster.
	ClusterLabel = "agent.ksctl.com/kwok-cluster"
	// sizeLabel holds the requested size of a machine.
	sizeLabel = "agent.ksctl.com/kwok-size"
	// kwokAnnotation marks the nodes that kwok simulates.
	kwokAnnotation = "kwok.x-k8s.io/node"
)

// Provisioner creates and deletes fake nodes. It has no state of its own but the machines without a
// node: the nodes are the machines.
type Provisioner struct {
	Client kubernetes.Interface
	// ConfigFile is the path of a Config as JSON; "" means none.
	ConfigFile string
	// ProviderID selects the provider ID of new nodes, unless the configuration file does.
	ProviderID ProviderID
	// InstanceType is the instance type label of new nodes; "" means their size. k3s sets "k3s".
	InstanceType string
}

// Run implements provisioner.Runner.
func (p *Provisioner) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
	k, err := ReadConfig(p.ConfigFile)
	if err != nil {
		return nil, err
	}
	switch r.Operation {
	case provisioner.Create:
		return nil, p.create(ctx, r, k)
	case provisioner.Delete:
		return nil, p.delete(ctx, r, k.Delete)
	}
	return p.list(ctx, r.Cluster, k)
}

// machine is a fake machine.
type machine struct {
	index uint32
	size  string
	// node is nil if the machine has not joined the cluster.
	node *corev1.Node
}

// machines returns the machines of a cluster, sorted by index. Several may have the same index if
// somebody created a node by hand.
func (p *Provisioner) machines(ctx context.Context, cluster provisioner.Cluster) ([]machine, error) {
	list, err := p.Client.CoreV1().Nodes().
		List(ctx, metav1.ListOptions{LabelSelector: ClusterLabel + "=" + cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pattern := regexp.MustCompile("^" + regexp.QuoteMeta(cluster.Name) + "-vm-wp-([0-9]+)-[a-z0-9]{5}$")
	var out []machine
	for i := range list.Items {
		node := &list.Items[i]
		parts := pattern.FindStringSubmatch(node.Name)
		if parts == nil || node.DeletionTimestamp != nil {
			continue
		}
		index, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			continue // out of range: not a node of this provisioner
		}
		out = append(out, machine{uint32(index), node.Labels[sizeLabel], node})
	}
	unjoined, err := p.readUnjoined(cluster)
	if err != nil {
		return nil, err
	}
	for index, size := range unjoined {
		out = append(out, machine{index, size, nil})
	}
	slices.SortFunc(out, func(a, b machine) int { return cmp.Compare(a.index, b.index) })
	return out, nil
}

func (p *Provisioner) list(ctx context.Context, cluster provisioner.Cluster, k Config) ([]provisioner.Worker, error) {
	out := []provisioner.Worker{}
	if done, err := k.List.inject(ctx); done {
		return out, err
	}
	if err := p.joinMachines(ctx, cluster, k); err != nil {
		return nil, err
	}
	machines, err := p.machines(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for i, m := range machines {
		if i == 0 || machines[i-1].index != m.index {
			w := provisioner.Worker{Index: m.index, Name: cluster.WorkerName(m.index), Size: m.size}
			if m.node != nil {
				w.Node = m.node.Name
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// create creates the missing machines, in the order of their index.
func (p *Provisioner) create(ctx context.Context, r provisioner.Request, k Config) error {
	size, err := k.findSize(r.Size)
	if err != nil {
		return err
	}
	machines, err := p.machines(ctx, r.Cluster)
	if err != nil {
		return err
	}
	var steps []func() error
	for index := r.From; index < r.Desired; index++ {
		if slices.ContainsFunc(machines, func(m machine) bool { return m.index == index }) {
			continue
		}
		steps = append(steps, func() error {
			if k.NoNode {
				return p.setUnjoined(r.Cluster, index, r.Size)
			}
			return p.createNode(ctx, r.Cluster, index, r.Size, size, k)
		})
	}
	return runSteps(ctx, steps, k.Create)
}

// createNode creates a fake node with a name as ksctl's machines give to their nodes.
func (p *Provisioner) createNode(ctx context.Context, cluster provisioner.Cluster, index uint32, sizeName string,
	size Size, k Config) error {
	name := cluster.WorkerName(index) + "-" + rand.String(5)
	capacity := size.capacity()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{kwokAnnotation: "fake", "node.alpha.kubernetes.io/ttl": "0"},
			Labels: map[string]string{
				ClusterLabel: cluster.Name, "type": "kwok", sizeLabel: sizeName,
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: goruntime.GOARCH,
				corev1.LabelInstanceTypeStable: cmp.Or(p.InstanceType, sizeName),
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: allocatable(capacity)},
	}
	if cmp.Or(k.ProviderID, p.ProviderID) != NoProviderID {
		node.Spec.ProviderID = "k3s://" + name
	}
	if _, err := p.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", node.Name, err)
	}
	return nil
}

// delete deletes machines from the end.
func (p *Provisioner) delete(ctx context.Context, r provisioner.Request, fault Fault) error {
	machines, err := p.machines(ctx, r.Cluster)
	if err != nil {
		return err
	}
	slices.Reverse(machines)
	var steps []func() error
	for _, m := range machines {
		if m.index < r.Desired {
			break
		}
		steps = append(steps, func() error {
			if m.node == nil {
				return p.setUnjoined(r.Cluster, m.index, "")
			}
			err := p.Client.CoreV1().Nodes().
				Delete(ctx, m.node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.node.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting node %s: %w", m.node.Name, err)
			}
			return nil
		})
	}
	return runSteps(ctx, steps, fault)
}

// runSteps runs steps and injects a fault after fault.After of them, or after the last one if there
// are fewer.
func runSteps(ctx context.Context, steps []func() error, fault Fault) error {
	for i := 0; i <= len(steps); i++ {
		if i == min(fault.After, len(steps)) {
			if done, err := fault.inject(ctx); done {
				return err
			}
		}
		if i < len(steps) {
			if err := steps[i](); err != nil {
				return err
			}
		}
	}
	return nil
}
