package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DrainError reports a node that could not be drained in time.
type DrainError struct {
	Node string
	// Timeout is the time limit that was exceeded.
	Timeout time.Duration
	// Pods are the remaining pods, as <namespace>/<name>.
	Pods []string
	// Reason is why the last of them could not be evicted; "" if all were evicted but have not
	// terminated.
	Reason string
}

// Error implements error.
func (e *DrainError) Error() string {
	const maxPods = 3
	pods := strings.Join(e.Pods[:min(len(e.Pods), maxPods)], ", ")
	if more := len(e.Pods) - maxPods; more > 0 {
		pods += fmt.Sprintf(" and %d more", more)
	}
	reason := "pods were evicted but have not terminated"
	if e.Reason != "" {
		reason = e.Reason
	}
	return fmt.Sprintf("node %s could not be drained within %s, and no machine was deleted: %s (remaining pods: %s)", e.Node, e.Timeout, reason, pods)
}

// drainAll drains nodes. It cordons all of them first, so that no pod moves from one leaving node
// to another. If one can't be drained, all are uncordoned.
func (j *job) drainAll(nodes []workerNode) error {
	if err := j.cordon(nodes); err != nil {
		return j.abortDrain(nodes, err)
	}
	for _, n := range nodes {
		err := j.drain(n.node.Name)
		if drainErr, ok := errors.AsType[*DrainError](err); ok && j.opts.ForceAfterDrain {
			j.clusterScaler.log.Info("deleting a machine although its node is not drained", "id", j.ID, "node", n.node.Name, "why", drainErr.Error())
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
	deadline := j.opts.Clock.Now().Add(j.opts.DrainTimeout)
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
		now := j.opts.Clock.Now()
		if !now.Before(deadline) {
			return &DrainError{Node: node, Timeout: j.opts.DrainTimeout, Pods: remaining, Reason: reason}
		}
		j.setProgress(fmt.Sprintf("draining node %s: remaining pods: %d", node, len(remaining)))
		if len(remaining) != previous {
			wait, previous = initialBackoff, len(remaining)
		}
		if j.sleep(j.stopCtx, min(wait, deadline.Sub(now))) != nil {
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
	pods, err := j.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
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
			if !notReady || j.opts.Clock.Now().Before(deletionTime.Time) {
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
			j.opts.Metrics.evictionRefused(j.Name)
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
	if err != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return false
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
