package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// cordonedByAnnotation marks a node that the agent cordoned. Its value is the ID of the operation.
const cordonedByAnnotation = "agent.ksctl.com/cordoned-by"

// workerNode is a node of a worker. A worker has several if an earlier machine left its node
// behind.
type workerNode struct {
	worker string
	node   *corev1.Node
}

// nodeSuffix matches what ksctl's machines append to their name at each start, so that a recreated
// machine joins as a new node.
var nodeSuffix = regexp.MustCompile(`^-[a-z0-9]{5}$`)

// isNodeOf reports whether a node belongs to a worker: the provisioner returned its name, or the
// name is the worker's, with or without the suffix.
func isNodeOf(w provisioner.Worker, node string) bool {
	rest, ok := strings.CutPrefix(node, w.Name)
	return node == w.Node || ok && (rest == "" || nodeSuffix.MatchString(rest))
}

// matchNodes returns the nodes of workers, in the order of the workers.
func matchNodes(workers []provisioner.Worker, nodes []corev1.Node) []workerNode {
	byName := map[string][]*corev1.Node{}
	for i := range nodes {
		n := &nodes[i]
		byName[n.Name] = append(byName[n.Name], n)
		if at := strings.LastIndexByte(n.Name, '-'); at > 0 {
			byName[n.Name[:at]] = append(byName[n.Name[:at]], n)
		}
	}
	var out []workerNode
	for _, w := range workers {
		found := byName[w.Name]
		if w.Node != "" && !isNodeOf(provisioner.Worker{Name: w.Name}, w.Node) {
			found = slices.Concat(found, byName[w.Node])
		}
		for _, n := range found {
			if isNodeOf(w, n.Name) {
				out = append(out, workerNode{w.Name, n})
			}
		}
	}
	return out
}

// nodeRefs returns references to nodes.
func nodeRefs(nodes []workerNode) []nodeRef {
	out := make([]nodeRef, len(nodes))
	for i, n := range nodes {
		out[i] = nodeRef{n.node.Name, n.node.UID}
	}
	return out
}

// settleNodes uncordons the nodes whose machines exist, and deletes the nodes whose machines are
// deleted. It uses the workers of the last countWorkers.
func (j *job) settleNodes(nodes []nodeRef) error {
	var deleted, existing []nodeRef
	for _, ref := range nodes {
		has := func(w provisioner.Worker) bool { return isNodeOf(w, ref.Name) }
		if slices.ContainsFunc(j.workers, has) {
			existing = append(existing, ref)
		} else {
			deleted = append(deleted, ref)
		}
	}
	j.uncordon(existing)
	return j.deleteNodes(deleted)
}

// setNodeNames sets the node of each worker for which the provisioner returned none, if exactly one
// node matches.
func setNodeNames(workers []provisioner.Worker, nodes []corev1.Node) {
	found := map[string][]string{}
	for _, n := range matchNodes(workers, nodes) {
		found[n.worker] = append(found[n.worker], n.node.Name)
	}
	for i := range workers {
		if w := &workers[i]; w.Node == "" && len(found[w.Name]) == 1 {
			w.Node = found[w.Name][0]
		}
	}
}

// listNodes lists the nodes of the cluster. The resource version "" requests the latest state, "0"
// any cached one.
func (c *clusterScaler) listNodes(ctx context.Context, version string) ([]corev1.Node, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// withRetries calls try until it succeeds, at most maxAttempts times. It passes the errors after
// which it retries to onRetry, unless that is nil. It returns errStopped when the agent shuts down.
func (j *job) withRetries(what string, try func() error, onRetry func(error)) error {
	wait := initialBackoff
	for n := 1; ; n++ {
		err := try()
		switch {
		case err == nil:
			return nil
		case j.stopCtx.Err() != nil:
			return errStopped
		case n == maxAttempts:
			return fmt.Errorf("%s: %w", what, err)
		case onRetry != nil:
			onRetry(err)
		}
		if sleep(j.stopCtx, wait) != nil {
			return errStopped
		}
		wait = min(2*wait, maxBackoff)
	}
}

// findNodes returns the nodes of workers, in the order of the workers.
func (j *job) findNodes(workers []provisioner.Worker) (out []workerNode, err error) {
	err = j.withRetries("finding the nodes of workers", func() error {
		nodes, err := j.listNodes(j.stopCtx, "")
		out = matchNodes(workers, nodes)
		return err
	}, nil)
	return out, err
}

// deleteNodes deletes the Node objects of deleted machines, because no cloud controller does.
func (j *job) deleteNodes(refs []nodeRef) error {
	var remaining []string
	var errs []error
	for _, ref := range refs {
		err := j.withRetries("deleting node "+ref.Name, func() error {
			err := j.Client.CoreV1().Nodes().
				Delete(j.killCtx, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ref.UID}})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // deleted already, or replaced by another node of the same name
			}
			return err
		}, nil)
		if errors.Is(err, errStopped) {
			return err
		}
		if err != nil {
			remaining, errs = append(remaining, ref.Name), append(errs, err)
		}
	}
	if len(remaining) > 0 {
		return fmt.Errorf("the machines are deleted, but their nodes can't be deleted: %s: %w",
			strings.Join(remaining, ", "), errors.Join(errs...))
	}
	return nil
}

// cordon cordons nodes. It does not mark nodes that are cordoned already, so uncordon leaves them
// cordoned.
func (j *job) cordon(nodes []workerNode) error {
	for _, n := range nodes {
		if n.node.Spec.Unschedulable {
			continue
		}
		patch := map[string]any{"metadata": map[string]any{"uid": n.node.UID,
			"annotations": map[string]any{cordonedByAnnotation: j.ID}},
			"spec": map[string]any{"unschedulable": true}}
		if err := j.withRetries("cordoning node "+n.node.Name, func() error {
			return j.patchNode(j.stopCtx, n.node.Name, patch)
		}, nil); err != nil {
			return err
		}
	}
	return nil
}

// uncordon uncordons the nodes that this operation cordoned. It only logs errors, because the
// operation has already failed for another reason.
func (j *job) uncordon(nodes []nodeRef) {
	for _, n := range nodes {
		err := j.withRetries("uncordoning node "+n.Name, func() error {
			have, err := j.Client.CoreV1().Nodes().Get(j.killCtx, n.Name, metav1.GetOptions{})
			if err != nil || have.UID != n.UID || have.Annotations[cordonedByAnnotation] != j.ID {
				return ignoreNotFound(err)
			}
			return j.patchNode(j.killCtx, n.Name, map[string]any{
				"metadata": map[string]any{"resourceVersion": have.ResourceVersion,
					"annotations": map[string]any{cordonedByAnnotation: nil}},
				"spec": map[string]any{"unschedulable": nil}})
		}, nil)
		if err != nil {
			j.log.Error(err, "uncordoning a node failed; the node stays cordoned", "node", n.Name)
		}
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patchNode patches a node. A deleted node is not an error.
func (j *job) patchNode(ctx context.Context, name string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = j.Client.CoreV1().Nodes().
		Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "ksctl-agent"})
	return ignoreNotFound(err)
}
