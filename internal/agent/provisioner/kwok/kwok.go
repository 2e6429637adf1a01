package kwok

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

const (
	// ClusterLabel marks the nodes that were made here, with the name of their cluster.
	ClusterLabel = "agent.ksctl.com/kwok-cluster"
	// sizeLabel has the size that a machine was asked for with.
	sizeLabel = "agent.ksctl.com/kwok-size"
	// fakeAnnotation is the one by which kwok knows the nodes that it plays.
	fakeAnnotation = "kwok.x-k8s.io/node"
)

// Provisioner makes and deletes fake nodes. It keeps nothing: the nodes are what there is.
type Provisioner struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	// Config is a file of knobs; "" is none.
	Config string
	// ProviderID of new nodes, unless the file says another.
	ProviderID ProviderID
	// InstanceType that new nodes say they are of; their size when it is "". k3s has it be "k3s".
	InstanceType string
}

var _ provisioner.Runner = (*Provisioner)(nil)

// Run implements provisioner.Runner.
func (p *Provisioner) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
	k, err := Read(p.Config)
	if err != nil {
		return nil, err
	}
	switch r.Operation {
	case provisioner.List:
		return p.list(ctx, r.Cluster, k)
	case provisioner.Create:
		return nil, p.create(ctx, r, k)
	case provisioner.Delete:
		return nil, p.delete(ctx, r, k.Delete)
	}
	return nil, &provisioner.Error{Code: "UnknownOperation", Class: provisioner.Other, Message: "no such operation: " + string(r.Operation)}
}

// machine is what was made here.
type machine struct {
	index uint32
	size  string
	// node of it; nil: it has joined nothing.
	node *corev1.Node
}

// machines are those of a cluster, by their index; there may be several at one, if it was made
// by hand.
func (p *Provisioner) machines(ctx context.Context, cluster provisioner.Cluster) ([]machine, error) {
	list, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: ClusterLabel + "=" + cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	name := regexp.MustCompile("^" + regexp.QuoteMeta(cluster.Name) + "-vm-wp-([0-9]+)-[a-z0-9]{5}$")
	var out []machine
	for i := range list.Items {
		node := &list.Items[i]
		parts := name.FindStringSubmatch(node.Name)
		if parts == nil || node.DeletionTimestamp != nil {
			continue
		}
		index, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			continue // longer than any that is made here
		}
		out = append(out, machine{uint32(index), node.Labels[sizeLabel], node})
	}
	lone, err := p.lone(cluster)
	if err != nil {
		return nil, err
	}
	for index, size := range lone {
		out = append(out, machine{index, size, nil})
	}
	slices.SortFunc(out, func(a, b machine) int { return int(int64(a.index) - int64(b.index)) })
	return out, nil
}

func (p *Provisioner) list(ctx context.Context, cluster provisioner.Cluster, k Knobs) ([]provisioner.Worker, error) {
	out := []provisioner.Worker{}
	if done, err := k.List.goWrong(p.wait(ctx)); done {
		return out, err
	}
	if err := p.join(ctx, cluster, k); err != nil {
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

// create makes those machines that are missing, in the order of their index.
func (p *Provisioner) create(ctx context.Context, r provisioner.Request, k Knobs) error {
	size, err := k.size(r.Size)
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
				return p.keep(r.Cluster, index, r.Size)
			}
			return p.newNode(ctx, r.Cluster, index, r.Size, size, k)
		})
	}
	return p.do(ctx, steps, k.Create)
}

func (p *Provisioner) newNode(ctx context.Context, cluster provisioner.Cluster, index uint32, sizeName string, size Size, k Knobs) error {
	node := nodeOf(cluster, index, sizeName, size, cmp.Or(k.ProviderID, p.ProviderID))
	node.Labels[corev1.LabelInstanceTypeStable] = cmp.Or(p.InstanceType, sizeName)
	if _, err := p.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", node.Name, err)
	}
	return nil
}

// delete deletes machines from the end.
func (p *Provisioner) delete(ctx context.Context, r provisioner.Request, knob Knob) error {
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
				return p.forget(r.Cluster, m.index)
			}
			err := p.Client.CoreV1().Nodes().Delete(ctx, m.node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.node.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting node %s: %w", m.node.Name, err)
			}
			return nil
		})
	}
	return p.do(ctx, steps, knob)
}

// do takes steps, and goes wrong where a knob says. A knob goes wrong behind the last step, too.
func (p *Provisioner) do(ctx context.Context, steps []func() error, knob Knob) error {
	for i := 0; i <= len(steps); i++ {
		if knob.turned() && i == min(knob.After, len(steps)) {
			if done, err := knob.goWrong(p.wait(ctx)); done {
				return err
			}
		}
		if i == len(steps) {
			break
		}
		if err := steps[i](); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provisioner) wait(ctx context.Context) func(time.Duration) error {
	return func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Clock.After(d):
			return nil
		}
	}
}

// nodeOf is a fake node, named as ksctl's machines name theirs.
func nodeOf(cluster provisioner.Cluster, index uint32, sizeName string, size Size, id ProviderID) *corev1.Node {
	name := cluster.WorkerName(index) + "-" + suffix()
	capacity := size.capacity()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{fakeAnnotation: "fake", "node.alpha.kubernetes.io/ttl": "0"},
			Labels: map[string]string{
				ClusterLabel: cluster.Name, "type": "kwok",
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: goruntime.GOARCH,
				sizeLabel: sizeName,
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: allocatable(capacity)},
	}
	if id != None {
		node.Spec.ProviderID = "k3s://" + name
	}
	return node
}

// suffix is 5 random characters of a-z and 0-9.
func suffix() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 5)
	_, _ = rand.Read(out) // it never fails
	for i, b := range out {
		out[i] = letters[int(b)%len(letters)]
	}
	return string(out)
}
