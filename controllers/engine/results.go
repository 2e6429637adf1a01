package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// collectResult records the result of a Job in its annotation, which is empty for a Job without
// one. An account that may not list Pods has Jobs without results.
func (a *executor) collectResult(ctx context.Context, act *plan.Action) actionResult {
	ref, uid := act.Ref(), act.Live.UID
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, act.Entry.Version, ref.Kind)
	if err != nil {
		return a.collectLater(act, err)
	}
	text, err := a.readResult(ctx, ref, uid)
	if apierrors.IsForbidden(err) {
		a.warn(fmt.Sprintf("%s: its result is unknown, because the account may not list Pods in namespace %s", ref,
			ref.Namespace))
		err = nil
	}
	if err != nil {
		return a.collectLater(act, err)
	}
	u, err := a.mergePatch(ctx, WriteUpdate, a.client.Resource(m.Resource).Namespace(ref.Namespace), ref.Name,
		map[string]any{"metadata": map[string]any{"uid": uid,
			"annotations": map[string]any{live.ResultAnnotation: text}}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, uid)
		return actionResult{}
	case err != nil:
		return a.collectLater(act, err)
	}
	a.engine.results.reset(a.ownerKey, act.Entry.ID)
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.errorResult(act, err)
	}
	return actionResult{}
}

// collectLater plans another attempt. The Job is not affected: it has ended.
func (a *executor) collectLater(act *plan.Action, err error) actionResult {
	if isFatal(err) {
		return actionResult{fatal: err}
	}
	a.engine.results.record(a.ownerKey, act.Entry.ID, a.engine.clock.Now().Add(retryDelay(err, a.retry.Interval)))
	return actionResult{}
}

// collectedResults returns the Jobs whose result is not to be read now.
func (a *executor) collectedResults(now time.Time) map[string]bool {
	out := maps.Clone(a.collected)
	for id, retryAt := range a.engine.results.all(a.ownerKey) {
		if now.Before(retryAt) {
			out[id] = true
		}
	}
	return out
}

// nextCollection returns the time of the next attempt to read a result; zero if there is none.
func (a *executor) nextCollection(now time.Time) (next time.Time) {
	for id, retryAt := range a.engine.results.all(a.ownerKey) {
		if _, listed := a.owner.Inventory().Get(id); listed && now.Before(retryAt) &&
			(next.IsZero() || retryAt.Before(next)) {
			next = retryAt
		}
	}
	return next
}

func (a *executor) warn(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Warnings = append(a.report.Warnings, message)
}

// readResult returns the termination message of the Pod of a Job that ended last; empty if it is
// not a result.
func (a *executor) readResult(ctx context.Context, job stacks.Ref, uid types.UID) (string, error) {
	list, err := a.listWithRetry(ctx, corev1.SchemeGroupVersion.WithResource("pods"), job.Namespace,
		metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(uid)})
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), &pods); err != nil {
		return "", err
	}
	return redactResult(live.ParseResult(lastTerminationMessage(pods.Items)), a.owner.Policies().Redact), nil
}

// redactResult returns a result with its texts redacted; empty if there is none, or if it becomes
// too long. redact may be nil.
func redactResult(result json.RawMessage, redact func(string) string) string {
	if result == nil || redact == nil {
		return string(result)
	}
	var value any
	if json.Unmarshal(result, &value) != nil {
		return ""
	}
	raw, err := json.Marshal(redactTexts(value, redact))
	if err != nil {
		return ""
	}
	return string(live.ParseResult(string(raw)))
}

// redactTexts returns a JSON value with its texts redacted.
func redactTexts(value any, redact func(string) string) any {
	switch v := value.(type) {
	case string:
		return redact(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[redact(key)] = redactTexts(item, redact)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = redactTexts(v[i], redact)
		}
		return out
	}
	return value
}

// lastTerminationMessage returns the message of the container that ended last, of those with a
// message in the Pod that ended last. It is a pure function.
func lastTerminationMessage(pods []corev1.Pod) (message string) {
	var podEnd time.Time
	for i := range pods {
		var end, messageEnd time.Time
		own := ""
		for _, c := range pods[i].Status.ContainerStatuses {
			t := c.State.Terminated
			if t == nil {
				continue
			}
			if t.FinishedAt.After(end) {
				end = t.FinishedAt.Time
			}
			if t.Message != "" && (own == "" || t.FinishedAt.After(messageEnd)) {
				own, messageEnd = t.Message, t.FinishedAt.Time
			}
		}
		if end.After(podEnd) {
			podEnd, message = end, own
		}
	}
	return message
}
