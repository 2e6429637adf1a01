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

// cordonedBy is the annotation of a node that was cordoned here, with the id of the operation.
const cordonedBy = "agent.ksctl.com/cordoned-by"

// workerNode is a node of a worker. There may be several, if one was left behind.
type workerNode struct {
	worker string
	node   *corev1.Node
}

// suffix is what ksctl's machines add to their name when they start, so that one that is made again
// is another node.
var suffix = regexp.MustCompile(`^-[a-z0-9]{5}$`)

// isNodeOf is true for a node of a worker: it has the worker's name, or that and the suffix.
func isNodeOf(w provisioner.Worker, node string) bool {
	rest, ok := strings.CutPrefix(node, w.Name)
	return node == w.Node || ok && (rest == "" || suffix.MatchString(rest))
}

// match finds the nodes of workers, in the order of the workers.
func match(workers []provisioner.Worker, nodes []corev1.Node) []workerNode {
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

// refs are the nodes alone.
func refs(nodes []workerNode) []nodeRef {
	out := make([]nodeRef, len(nodes))
	for i, n := range nodes {
		out[i] = nodeRef{n.node.Name, n.node.UID}
	}
	return out
}

// split tells nodes whose machines are gone from those whose machines are there.
func (j *job) split(nodes []nodeRef) (gone, there []nodeRef) {
	for _, ref := range nodes {
		has := func(w provisioner.Worker) bool { return isNodeOf(w, ref.Name) }
		if slices.ContainsFunc(j.workers, has) {
			there = append(there, ref)
		} else {
			gone = append(gone, ref)
		}
	}
	return gone, there
}

// fill says of each worker what its node is called, where the provisioner does not and there is one.
func fill(workers []provisioner.Worker, nodes []corev1.Node) {
	found := map[string][]string{}
	for _, n := range match(workers, nodes) {
		found[n.worker] = append(found[n.worker], n.node.Name)
	}
	for i := range workers {
		if w := &workers[i]; w.Node == "" && len(found[w.Name]) == 1 {
			w.Node = found[w.Name][0]
		}
	}
}

// nodes of the cluster, as they are at a version; "" is the newest, "0" any that is at hand.
func (c *cluster) nodes(ctx context.Context, version string) ([]corev1.Node, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// again tries something until it works, some times.
func (j *job) again(what string, try func() error) error {
	wait := firstPause
	for n := 1; ; n++ {
		err := try()
		switch {
		case err == nil:
			return nil
		case j.stop.Err() != nil:
			return errStopped
		case n == patience:
			return fmt.Errorf("%s: %w", what, err)
		}
		if j.pause(j.stop, wait) != nil {
			return errStopped
		}
		wait = min(2*wait, longestPause)
	}
}

// nodesOf are the nodes of workers, the last worker's first.
func (j *job) nodesOf(workers []provisioner.Worker) (out []workerNode, err error) {
	err = j.again("finding the nodes of workers", func() error {
		nodes, err := j.nodes(j.stop, "")
		out = match(workers, nodes)
		return err
	})
	return out, err
}

// dropNodes deletes Node objects: those of machines that are gone, which no cloud controller does.
func (j *job) dropNodes(refs []nodeRef) error {
	var left []string
	var errs []error
	for _, ref := range refs {
		err := j.again("deleting node "+ref.Name, func() error {
			err := j.Client.CoreV1().Nodes().Delete(j.hard, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ref.UID}})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // gone, or another one of the same name
			}
			return err
		})
		if errors.Is(err, errStopped) {
			return err
		}
		if err != nil {
			left, errs = append(left, ref.Name), append(errs, err)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the machines are gone, and these nodes of theirs are left: %s: %w", strings.Join(left, ", "), errors.Join(errs...))
	}
	return nil
}

// cordon keeps new pods from the nodes. One that somebody else has cordoned stays so afterwards.
func (j *job) cordon(nodes []workerNode) error {
	for _, n := range nodes {
		if n.node.Spec.Unschedulable {
			continue
		}
		patch := map[string]any{"metadata": map[string]any{"uid": n.node.UID, "annotations": map[string]any{cordonedBy: j.ID}},
			"spec": map[string]any{"unschedulable": true}}
		if err := j.again("cordoning node "+n.node.Name, func() error { return j.patch(j.stop, n.node.Name, patch) }); err != nil {
			return err
		}
	}
	return nil
}

// uncordon gives nodes back that were cordoned here. What can't be is said in the log alone: the
// operation has failed for another reason.
func (j *job) uncordon(nodes []nodeRef) {
	for _, n := range nodes {
		err := j.again("uncordoning node "+n.Name, func() error {
			have, err := j.Client.CoreV1().Nodes().Get(j.hard, n.Name, metav1.GetOptions{})
			if err != nil || have.UID != n.UID || have.Annotations[cordonedBy] != j.ID {
				return ignoreGone(err)
			}
			return j.patch(j.hard, n.Name, map[string]any{
				"metadata": map[string]any{"resourceVersion": have.ResourceVersion, "annotations": map[string]any{cordonedBy: nil}},
				"spec":     map[string]any{"unschedulable": nil}})
		})
		if err != nil {
			j.cluster.log.Error(err, "a node stays cordoned", "node", n.Name)
		}
	}
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patch changes a node; one that is gone is no error.
func (j *job) patch(ctx context.Context, name string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = j.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "ksctl-agent"})
	return ignoreGone(err)
}
