package fakeautoscaler

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// pendingPods returns the unschedulable pods.
func pendingPods(pods []corev1.Pod) (out []*corev1.Pod) {
	for i := range pods {
		p := &pods[i]
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && p.Spec.NodeName == "" &&
				p.DeletionTimestamp == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// scaleUp requests machines for pods that fit on no existing node and no requested machine.
func (a *Autoscaler) scaleUp(ctx context.Context, groups []*group, pods []corev1.Pod, pending []*corev1.Pod) error {
	for _, g := range groups {
		if g.target >= g.MaxSize || time.Now().Before(a.backoff[g.Id]) {
			continue
		}
		need := min(g.need(pods, pending), g.MaxSize-g.target)
		if need <= 0 {
			continue
		}
		_, err := a.api.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: g.Id, Delta: need})
		if a.recordError(err) != nil {
			a.backoff[g.Id] = time.Now().Add(5 * time.Second)
			return err
		}
		return nil
	}
	return nil
}

// need returns how many more machines a group needs for the pending pods that fit in it, besides
// the free space of existing nodes and the machines already requested.
func (g *group) need(pods []corev1.Pod, pending []*corev1.Pod) int32 {
	used := map[string]int64{}
	for i := range pods {
		used[pods[i].Spec.NodeName] += request(&pods[i])
	}
	var fitting, each int64
	for _, p := range pending {
		if labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(g.template.Labels)) {
			fitting, each = fitting+1, request(p)
		}
	}
	if fitting == 0 {
		return 0
	}
	for _, n := range g.nodes {
		if !tainted(n) {
			fitting -= (n.Status.Allocatable.Cpu().MilliValue() - used[n.Name]) / each
		}
	}
	per := g.template.Status.Allocatable.Cpu().MilliValue() / each
	if fitting <= 0 || per == 0 {
		return 0
	}
	return int32((fitting+per-1)/per) - (g.target - int32(len(g.nodes)) - int32(len(g.failed)))
}

// request returns the CPU request of a pod in millicores.
func request(p *corev1.Pod) (milli int64) {
	for _, c := range p.Spec.Containers {
		milli += c.Resources.Requests.Cpu().MilliValue()
	}
	return milli
}

// scaleDown requests the deletion of one node without pods, unless it is protected.
func (a *Autoscaler) scaleDown(ctx context.Context, groups []*group, pods []corev1.Pod) error {
	busy := map[string]bool{}
	for i := range pods {
		if p := &pods[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			busy[p.Spec.NodeName] = true
		}
	}
	for _, g := range groups {
		if g.target <= g.MinSize {
			continue
		}
		for _, n := range g.nodes {
			if busy[n.Name] || n.Annotations[DisabledAnnotation] == "true" || tainted(n) {
				continue
			}
			if err := a.MarkToBeDeleted(ctx, n); err != nil {
				return err
			}
			_, err := a.api.NodeGroupDeleteNodes(ctx,
				&externalgrpc.NodeGroupDeleteNodesRequest{Id: g.Id,
					Nodes: []*externalgrpc.ExternalGrpcNode{grpcNode(n)}})
			if err != nil { // like Cluster Autoscaler, make the node schedulable again
				err = errors.Join(err, a.unmark(ctx, n))
			}
			return a.recordError(err)
		}
	}
	return nil
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == ToBeDeletedTaint })
}

// MarkToBeDeleted taints and cordons a node in one update.
func (a *Autoscaler) MarkToBeDeleted(ctx context.Context, n *corev1.Node) error {
	before := n.DeepCopy()
	n.Spec.Taints = append(n.Spec.Taints,
		corev1.Taint{Key: ToBeDeletedTaint, Value: strconv.FormatInt(time.Now().Unix(), 10),
			Effect: corev1.TaintEffectNoSchedule})
	n.Spec.Unschedulable = true
	return a.Cluster.Patch(ctx, n, client.MergeFrom(before))
}

// unmark removes the taint and uncordons the node. A node without the taint stays cordoned.
func (a *Autoscaler) unmark(ctx context.Context, n *corev1.Node) error {
	if !tainted(n) {
		return nil
	}
	before := n.DeepCopy()
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == ToBeDeletedTaint })
	n.Spec.Unschedulable = false
	return a.Cluster.Patch(ctx, n, client.MergeFrom(before))
}

// unmarkAtStart unmarks the nodes that an earlier process has marked, once.
func (a *Autoscaler) unmarkAtStart(ctx context.Context, groups []*group) error {
	if a.started || len(groups) == 0 {
		return nil
	}
	for _, g := range groups {
		for _, n := range g.nodes {
			if err := a.unmark(ctx, n); err != nil {
				return err
			}
		}
	}
	a.started = true
	return nil
}
