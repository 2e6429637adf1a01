package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/live"
)

const (
	// scaleDownDisabledAnnotation keeps a node from Cluster Autoscaler.
	// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
	scaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// toBeDeletedTaint is put on a node by Cluster Autoscaler before it goes.
	toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"
)

// mark is what is to change of a node.
type mark struct {
	node   *corev1.Node
	labels map[string]any
	// disabled sets the annotation to a value, or takes it off; nil: it is as it should be.
	disabled   any
	change     bool
	taints     []corev1.Taint
	retaint    bool
	uncordon   bool
	providerID string
}

// marks are the changes of the nodes of a fleet: each worker has its pool's labels and taints, a
// providerID, by which Cluster Autoscaler knows it, and all but the last one, if that may go, are
// kept from Cluster Autoscaler. released are those that are used again after it has marked them, by
// their index, of whatever pool, or of none any more.
func marks(f *fleet, pools []clusterv1.WorkerPool, mayGo func(*machine) bool, released map[int32]bool) []mark {
	byName := map[string]*clusterv1.WorkerPool{}
	for i := range pools {
		byName[pools[i].Name] = &pools[i]
	}
	var out []mark
	for i := range f.machines {
		m := &f.machines[i]
		if m.node == nil || m.node.DeletionTimestamp != nil {
			continue
		}
		pool := byName[m.pool]
		x := mark{node: m.node, taints: slices.Clone(m.node.Spec.Taints)}
		keep := i < len(f.machines)-1 || !mayGo(m)
		switch have := m.node.Annotations[scaleDownDisabledAnnotation]; {
		case pool == nil:
		case keep && have != "true":
			x.disabled, x.change = "true", true
		case !keep && have != "":
			x.disabled, x.change = nil, true
		}
		if pool != nil {
			x.labels = missing(m.node, pool)
			x.tainted(pool)
			if m.node.Spec.ProviderID == "" {
				x.providerID = "ksctl://" + m.node.Name
			}
		}
		if released[m.index] {
			x.release()
		}
		if x.change || len(x.labels) > 0 || x.retaint || x.providerID != "" {
			out = append(out, x)
		}
	}
	return out
}

// missing are the labels of its pool that a node has not.
func missing(node *corev1.Node, pool *clusterv1.WorkerPool) map[string]any {
	out := map[string]any{}
	for name, value := range pool.Labels {
		if have, ok := node.Labels[name]; !ok || have != value {
			out[name] = value
		}
	}
	if node.Labels[clusterv1.PoolLabel] != pool.Name {
		out[clusterv1.PoolLabel] = pool.Name
	}
	return out
}

// tainted adds the pool's taints when a node joins: what somebody takes off later stays off.
func (x *mark) tainted(pool *clusterv1.WorkerPool) {
	if x.node.Labels[clusterv1.PoolLabel] == pool.Name {
		return
	}
	for _, t := range pool.Taints {
		if !slices.ContainsFunc(x.taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			x.taints, x.retaint = append(x.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}), true
		}
	}
}

// release takes off what Cluster Autoscaler put on: it cordons a node as it taints it. One that has
// not that taint was cordoned by a person, and stays so.
func (x *mark) release() {
	n := len(x.taints)
	x.taints = slices.DeleteFunc(x.taints, func(t corev1.Taint) bool { return t.Key == toBeDeletedTaint })
	if len(x.taints) < n {
		x.retaint, x.uncordon = true, x.node.Spec.Unschedulable
	}
}

// patch is the change as a merge patch, for the node as it was seen.
func (x *mark) patch() ([]byte, error) {
	meta := map[string]any{"uid": x.node.UID}
	if len(x.labels) > 0 {
		meta["labels"] = x.labels
	}
	if x.change {
		meta["annotations"] = map[string]any{scaleDownDisabledAnnotation: x.disabled}
	}
	spec := map[string]any{}
	if x.retaint {
		spec["taints"] = x.taints
		meta["resourceVersion"] = x.node.ResourceVersion // a list is replaced whole
	}
	if x.uncordon {
		spec["unschedulable"] = nil
	}
	if x.providerID != "" {
		spec["providerID"] = x.providerID
	}
	doc := map[string]any{"metadata": meta}
	if len(spec) > 0 {
		doc["spec"] = spec
	}
	return json.Marshal(doc)
}

// mostMarks is how many nodes are changed at a time: the changes wake us for the others.
const mostMarks = 100

// put makes the changes. A node that has changed meanwhile wakes us again.
func put(ctx context.Context, c dynamic.Interface, all []mark) error {
	var errs []error
	for i := range all[:min(len(all), mostMarks)] {
		x := &all[i]
		patch, err := x.patch()
		if err != nil {
			return err
		}
		_, err = c.Resource(nodesResource).Patch(ctx, x.node.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: live.FieldManager})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("marking node %s: %w", x.node.Name, err))
		}
		if ctx.Err() != nil || len(errs) > 3 {
			break
		}
	}
	return errors.Join(errs...)
}

// unmark takes off the nodes what keeps them from Cluster Autoscaler.
func unmark(ctx context.Context, c dynamic.Interface, nodes []*corev1.Node, h hosts) error {
	var all []mark
	for _, node := range nodes {
		if _, ok := h.index(node.Name); ok && node.Annotations[scaleDownDisabledAnnotation] == "true" {
			all = append(all, mark{node: node, change: true})
		}
	}
	return put(ctx, c, all)
}

// strayTime is how long a node has not been ready before its machine is taken for gone: the agent's
// word may be older than the node.
const strayTime = 2 * time.Minute

// gone are the nodes whose machines are gone, and next is when another one may be. Those that are
// ready are no such node, whatever the agent says.
func gone(strays []*corev1.Node, now time.Time) (nodes []*corev1.Node, next time.Time) {
	for _, node := range strays {
		if nodeReady(node) || node.DeletionTimestamp != nil {
			continue
		}
		since := node.CreationTimestamp.Time
		for _, c := range node.Status.Conditions {
			if c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
		switch due := since.Add(strayTime); {
		case !now.Before(due):
			nodes = append(nodes, node)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return nodes, next
}

// sweep deletes nodes whose machines are gone: no cloud controller does that here.
func sweep(ctx context.Context, c dynamic.Interface, nodes []*corev1.Node) error {
	for _, node := range nodes {
		err := c.Resource(nodesResource).Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting node %s, whose machine is gone: %w", node.Name, err)
		}
	}
	return nil
}

// taintedAt is when Cluster Autoscaler marked a node as one that goes: the taint's value has the
// seconds since 1970.
func taintedAt(node *corev1.Node) (time.Time, bool) {
	for _, t := range node.Spec.Taints {
		if t.Key == toBeDeletedTaint {
			seconds, err := strconv.ParseInt(t.Value, 10, 64)
			return time.Unix(seconds, 0), err == nil
		}
	}
	return time.Time{}, false
}
