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

// DrainError says that a node could not be drained in time.
type DrainError struct {
	Node   string
	Within time.Duration
	// Pods that are left, as <namespace>/<name>.
	Pods []string
	// Why the last of them could not be evicted; "": they were, and take their time.
	Why string
}

// Error implements error.
func (e *DrainError) Error() string {
	const most = 3
	pods := strings.Join(e.Pods[:min(len(e.Pods), most)], ", ")
	if more := len(e.Pods) - most; more > 0 {
		pods += fmt.Sprintf(" and %d more", more)
	}
	why := "they were asked to go and are still there"
	if e.Why != "" {
		why = e.Why
	}
	return fmt.Sprintf("node %s could not be drained within %s, and no machine was deleted: %s (of its pods %s are left)", e.Node, e.Within, why, pods)
}

// drainAll drains nodes. All of them are cordoned first, so that no pod moves from one that goes to
// another. When one can't be drained they are given back.
func (j *job) drainAll(nodes []workerNode) error {
	if err := j.cordon(nodes); err != nil {
		return j.giveBack(nodes, err)
	}
	for _, n := range nodes {
		err := j.drain(n.node.Name)
		if late, ok := errors.AsType[*DrainError](err); ok && j.opts.ForceAfterDrain {
			j.cluster.log.Info("the machine goes with what is on it", "id", j.ID, "node", n.node.Name, "why", late.Error())
			continue
		}
		if err != nil {
			return j.giveBack(nodes, err)
		}
	}
	return nil
}

// giveBack uncordons nodes that could not be drained, and returns why; where the agent ends before
// it has, all of it is left for the next start.
func (j *job) giveBack(nodes []workerNode, why error) error {
	if !errors.Is(why, errStopped) {
		j.uncordon(refs(nodes))
	}
	return j.stopped(why)
}

// drain evicts the pods of a node, and waits until they are gone.
func (j *job) drain(node string) error {
	j.tell("draining node " + node)
	until := j.opts.Clock.Now().Add(j.opts.DrainWithin)
	wait, before := firstPause, -1
	for {
		left, why, err := j.evict(j.stop, node)
		switch {
		case j.stop.Err() != nil:
			return errStopped
		case err != nil && refused(err):
			return fmt.Errorf("draining node %s: %w", node, err)
		case err != nil:
			why = err.Error()
		case len(left) == 0:
			return nil
		}
		now := j.opts.Clock.Now()
		if !now.Before(until) {
			return &DrainError{Node: node, Within: j.opts.DrainWithin, Pods: left, Why: why}
		}
		j.tell(fmt.Sprintf("draining node %s: %d pods are left", node, len(left)))
		if len(left) != before {
			wait, before = firstPause, len(left)
		}
		if j.pause(j.stop, min(wait, until.Sub(now))) != nil {
			return errStopped
		}
		wait = min(2*wait, longestPause)
	}
}

// refused is true for an error that does not go by itself: the agent lacks a right.
func refused(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// evict asks for the eviction of each pod that has to go, and returns those that are there, with
// why the last one may not go. An error is that of the API server.
func (j *job) evict(ctx context.Context, node string) (left []string, why string, err error) {
	pods, err := j.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, "", fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	dead := j.dead(ctx, node)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != node || stays(pod) {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		if ends := pod.DeletionTimestamp; ends != nil {
			if !dead || j.opts.Clock.Now().Before(ends.Time) {
				left = append(left, name)
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
		case refused(err):
			return append(left, name), "", err
		case err != nil:
			why = fmt.Sprintf("%s: %v", name, err)
			j.opts.Metrics.held(j.Name)
		}
		left = append(left, name)
	}
	return left, why, nil
}

// dead is true for a node whose kubelet says nothing any more, or nothing good: a pod on it that
// was asked to go, and had its time to, is not waited for.
func (j *job) dead(ctx context.Context, name string) bool {
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

// stays is true for a pod that is not moved: it belongs to the node, or has ended.
func stays(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return true
	}
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
