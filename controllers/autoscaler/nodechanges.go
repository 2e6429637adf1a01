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
	// scaleDownDisabledAnnotation excludes a node from scale-down by Cluster Autoscaler.
	// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
	scaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// toBeDeletedTaint is set by Cluster Autoscaler on a node before it is deleted.
	toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"
)

// nodeChange is the change of a node.
type nodeChange struct {
	node   *corev1.Node
	labels map[string]any
	// annotations are the annotations to set; nil removes one.
	annotations map[string]any
	taints      []corev1.Taint
	setTaints   bool
	uncordon    bool
	providerID  string
}

// nodeChanges returns the changes of the nodes of workers. Each worker of a pool gets the labels
// and taints of its pool, and a providerID, by which Cluster Autoscaler identifies it. All of them
// except the last worker, if mayDelete allows its deletion, are excluded from scale-down.
// staleTaints contains the indexes of workers whose deletion taint is removed, whether they are in
// a pool or not.
func nodeChanges(f *machines, pools []clusterv1.WorkerPool, mayDelete func(*machine) bool,
	staleTaints map[int32]bool) []nodeChange {
	var out []nodeChange
	for i := range f.list {
		m := &f.list[i]
		if m.node == nil || m.node.DeletionTimestamp != nil {
			continue
		}
		pool := poolByName(pools, m.pool)
		x := nodeChange{node: m.node, taints: slices.Clone(m.node.Spec.Taints)}
		disable := i < len(f.list)-1 || !mayDelete(m)
		switch have := m.node.Annotations[scaleDownDisabledAnnotation]; {
		case pool == nil:
		case disable && have != "true":
			x.annotations = map[string]any{scaleDownDisabledAnnotation: "true"}
		case !disable && have != "":
			x.annotations = map[string]any{scaleDownDisabledAnnotation: nil}
		}
		if pool != nil {
			x.labels = missingLabels(m.node, pool)
			x.addTaints(pool)
			if m.node.Spec.ProviderID == "" {
				x.providerID = "ksctl://" + m.node.Name
			}
		}
		if staleTaints[m.index] {
			x.removeDeletionTaint()
		}
		if len(x.annotations) > 0 || len(x.labels) > 0 || x.setTaints || x.providerID != "" {
			out = append(out, x)
		}
	}
	return out
}

// missingLabels returns the labels of its pool that a node lacks.
func missingLabels(node *corev1.Node, pool *clusterv1.WorkerPool) map[string]any {
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

// addTaints adds the pool's taints when a node joins. It does not restore taints that are removed
// later.
func (x *nodeChange) addTaints(pool *clusterv1.WorkerPool) {
	if x.node.Labels[clusterv1.PoolLabel] == pool.Name {
		return
	}
	for _, t := range pool.Taints {
		if !slices.ContainsFunc(x.taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			x.taints, x.setTaints = append(x.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}), true
		}
	}
}

// removeDeletionTaint removes the taint of Cluster Autoscaler and uncordons the node, because
// Cluster Autoscaler cordons a node when it taints it. A cordoned node without that taint was
// cordoned by a user, and stays cordoned.
func (x *nodeChange) removeDeletionTaint() {
	n := len(x.taints)
	x.taints = slices.DeleteFunc(x.taints, func(t corev1.Taint) bool { return t.Key == toBeDeletedTaint })
	if len(x.taints) < n {
		x.setTaints, x.uncordon = true, x.node.Spec.Unschedulable
	}
}

// patch returns the change as a merge patch. It applies only to the observed node.
func (x *nodeChange) patch() ([]byte, error) {
	meta := map[string]any{"uid": x.node.UID}
	if len(x.labels) > 0 {
		meta["labels"] = x.labels
	}
	if len(x.annotations) > 0 {
		meta["annotations"] = x.annotations
	}
	spec := map[string]any{}
	if x.setTaints {
		spec["taints"] = x.taints
		meta["resourceVersion"] = x.node.ResourceVersion // a merge patch replaces the whole list
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

// maxNodePatches is how many nodes are patched in one reconcile. Their events trigger the next one.
const maxNodePatches = 100

// patchNodes applies the changes. It ignores conflicts: the event of the changed node triggers
// another reconcile.
func patchNodes(ctx context.Context, c dynamic.Interface, all []nodeChange) error {
	var errs []error
	for i := range all[:min(len(all), maxNodePatches)] {
		x := &all[i]
		patch, err := x.patch()
		if err != nil {
			return err
		}
		_, err = c.Resource(nodesResource).Patch(ctx, x.node.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: live.FieldManager})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("patching node %s: %w", x.node.Name, err))
		}
		if ctx.Err() != nil || len(errs) > 3 {
			break
		}
	}
	return errors.Join(errs...)
}

// removeScaleDownDisabled removes scaleDownDisabledAnnotation from the nodes of workers.
func removeScaleDownDisabled(ctx context.Context, c dynamic.Interface, nodes []*corev1.Node, h workerNames) error {
	var all []nodeChange
	for _, node := range nodes {
		if _, ok := h.index(node.Name); ok && node.Annotations[scaleDownDisabledAnnotation] == "true" {
			all = append(all, nodeChange{node: node, annotations: map[string]any{scaleDownDisabledAnnotation: nil}})
		}
	}
	return patchNodes(ctx, c, all)
}

// orphanTimeout is how long an orphaned node must be not ready before it is deleted: the agent's
// report may be older than the node.
const orphanTimeout = 2 * time.Minute

// deletableNodes returns the orphaned nodes to delete. next is the earliest time at which another
// one may be deleted. A ready node is never deleted, whatever the agent reports.
func deletableNodes(orphaned []*corev1.Node, now time.Time) (nodes []*corev1.Node, next time.Time) {
	for _, node := range orphaned {
		if nodeReady(node) || node.DeletionTimestamp != nil {
			continue
		}
		since := node.CreationTimestamp.Time
		for _, c := range node.Status.Conditions {
			since = later(since, c.LastTransitionTime.Time)
		}
		if due := since.Add(orphanTimeout); now.Before(due) {
			next = earliest(next, due)
		} else {
			nodes = append(nodes, node)
		}
	}
	return nodes, next
}

// deleteNodes deletes nodes whose machines no longer exist, because there is no cloud controller
// that does.
func deleteNodes(ctx context.Context, c dynamic.Interface, nodes []*corev1.Node) error {
	for _, node := range nodes {
		err := c.Resource(nodesResource).
			Delete(ctx, node.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID,
					ResourceVersion: &node.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting node %s, whose machine no longer exists: %w", node.Name, err)
		}
	}
	return nil
}

// taintedAt returns when Cluster Autoscaler set toBeDeletedTaint on a node: the value of the taint
// is a Unix time in seconds. It returns false if there is no taint, or if its value is not a
// number.
func taintedAt(node *corev1.Node) (time.Time, bool) {
	for _, t := range node.Spec.Taints {
		if t.Key == toBeDeletedTaint {
			seconds, err := strconv.ParseInt(t.Value, 10, 64)
			return time.Unix(seconds, 0), err == nil
		}
	}
	return time.Time{}, false
}
