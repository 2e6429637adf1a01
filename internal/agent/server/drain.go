package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drainError reports a node that could not be drained in time.
type drainError struct{ error }

// newDrainError returns the error of a node with remaining pods. reason is why the last of them
// could not be evicted; "" if all were evicted but have not terminated.
func newDrainError(node string, timeout time.Duration, remaining []string, reason string) error {
	const maxPods = 3
	pods := strings.Join(remaining[:min(len(remaining), maxPods)], ", ")
	if more := len(remaining) - maxPods; more > 0 {
		pods += fmt.Sprintf(" and %d more", more)
	}
	return &drainError{fmt.Errorf("node %s could not be drained within %s, and no machine was deleted: %s (remaining "+
		"pods: %s)",
		node, timeout, cmp.Or(reason, "pods were evicted but have not terminated"), pods)}
}

// drainAll drains nodes. It cordons all of them first, so that no pod moves from one leaving node
// to another. If one can't be drained, all are uncordoned.
func (j *job) drainAll(nodes []workerNode) error {
	if err := j.cordon(nodes); err != nil {
		return j.abortDrain(nodes, err)
	}
	for _, n := range nodes {
		err := j.drain(n.node.Name)
		if drainErr, ok := errors.AsType[*drainError](err); ok && j.opts.ForceAfterDrain {
			j.log.Info("deleting a machine although its node is not drained", "id", j.ID, "node", n.node.Name, "why",
				drainErr.Error())
			continue
		}
		if err != nil {
			return j.abortDrain(nodes, err)
		}
	}
	return nil
}

// abortDrain uncordons nodes after a failed drain and returns the reason. If the agent is shutting
// down, it returns errStopped, and the operation resumes at the next start.
func (j *job) abortDrain(nodes []workerNode, reason error) error {
	if !errors.Is(reason, errStopped) {
		j.uncordon(nodeRefs(nodes))
	}
	return j.stoppedOr(reason)
}

// drain evicts the pods of a node and waits until they have terminated.
func (j *job) drain(node string) error {
	j.setProgress("draining node " + node)
	deadline := time.Now().Add(j.opts.DrainTimeout)
	wait, previous := initialBackoff, -1
	for {
		remaining, reason, err := j.evict(j.stopCtx, node)
		switch {
		case j.stopCtx.Err() != nil:
			return errStopped
		case err != nil && isForbidden(err):
			return fmt.Errorf("draining node %s: %w", node, err)
		case err != nil:
			reason = err.Error()
		case len(remaining) == 0:
			return nil
		}
		now := time.Now()
		if !now.Before(deadline) {
			return newDrainError(node, j.opts.DrainTimeout, remaining, reason)
		}
		j.setProgress(fmt.Sprintf("draining node %s: remaining pods: %d", node, len(remaining)))
		if len(remaining) != previous {
			wait, previous = initialBackoff, len(remaining)
		}
		if sleep(j.stopCtx, min(wait, deadline.Sub(now))) != nil {
			return errStopped
		}
		wait = min(2*wait, maxBackoff)
	}
}

// isForbidden reports whether the agent lacks a permission, which retries do not fix. A terminating
// namespace, which the API server also reports as Forbidden, does not count.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// evict evicts the pods of a node. It returns the pods that still exist, and why the last of them
// could not be evicted. err is an error of the API server.
func (j *job) evict(ctx context.Context, node string) (remaining []string, reason string, err error) {
	pods, err := j.Client.CoreV1().Pods(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, "", fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	notReady := j.isNotReady(ctx, node)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != node || skipsDrain(pod) {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if deletionTime := pod.DeletionTimestamp; deletionTime != nil {
			if !notReady || time.Now().Before(deletionTime.Time) {
				remaining = append(remaining, name)
			}
			continue
		}
		uid := pod.UID
		err := j.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case isForbidden(err):
			return append(remaining, name), "", err
		case err != nil:
			reason = fmt.Sprintf("%s: %v", name, err)
			j.opts.Metrics.refusedEvictions.WithLabelValues(j.Name).Inc()
		}
		remaining = append(remaining, name)
	}
	return remaining, reason, nil
}

// isNotReady reports whether the Ready condition of a node is not true. The kubelet of such a node
// may never confirm that a pod terminated, so evict does not wait for a pod beyond its grace
// period.
func (j *job) isNotReady(ctx context.Context, name string) bool {
	node, err := j.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// skipsDrain reports whether a drain ignores a pod: a mirror pod, a pod of a DaemonSet, or one that
// has ended.
func skipsDrain(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return true
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
