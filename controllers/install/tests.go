package install

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// testSuffix makes the name of the component with the tests of a component.
const testSuffix = "/test"

// tests returns the tests that the annotation requests, as components that depend on those that
// they test. They stay until the annotation is removed. They run once for each value of it,
// whatever their content: after the end, only those that ran are returned.
func (o *owner) tests(ctx context.Context, rendered []stacks.RenderedComponent) []plan.Component {
	in := o.req.Object
	token := in.Annotations[appsv1.TestAnnotation]
	if token == "" {
		return nil
	}
	var components []stacks.RenderedComponent
	for i := range rendered {
		c := &rendered[i]
		if len(c.Tests) == 0 {
			continue
		}
		test := stacks.RenderedComponent{Name: c.Name + testSuffix, Version: c.Version, DependsOn: []string{c.Name},
			Wave: c.Wave + 1, Objects: slices.Clone(c.Tests)}
		for j := range test.Objects {
			hook := *test.Objects[j].Hook
			hook.Phase = stacks.HookPre // each weight is a step
			test.Objects[j].Hook = &hook
		}
		components = append(components, test)
	}
	out := engine.Prepare(ctx, components, o.Policies(), o.target.Discovery)
	for i := range out {
		out[i].Test = true
		for j := range out[i].Items {
			sum := sha256.Sum256([]byte(token + "\x00" + out[i].Items[j].ID))
			out[i].Items[j].ContentHash = base64.RawURLEncoding.EncodeToString(sum[:12])
		}
		if in.Status.LastHandledTest == token {
			out[i].Items = slices.DeleteFunc(out[i].Items, func(it plan.Item) bool {
				e, _ := o.inv.Get(it.ID)
				return e.Hash != it.ContentHash
			})
		}
	}
	return out
}

// recordTests sets the condition Tested to the result of the requested tests.
func (o *owner) recordTests(states []plan.ComponentState) {
	in := o.req.Object
	token := in.Annotations[appsv1.TestAnnotation]
	if token == "" {
		apimeta.RemoveStatusCondition(&in.Status.Conditions, appsv1.TestedCondition)
		in.Status.LastHandledTest = ""
		return
	}
	if in.Status.LastHandledTest == token {
		return
	}
	result := testResult(token, states)
	result.ObservedGeneration = in.Generation
	apimeta.SetStatusCondition(&in.Status.Conditions, result)
	if result.Status == metav1.ConditionUnknown {
		return
	}
	in.Status.LastHandledTest = token
	eventType := corev1.EventTypeNormal
	if result.Status == metav1.ConditionFalse {
		eventType = corev1.EventTypeWarning
	}
	o.req.Event(eventType, result.Reason, result.Message)
}

// testResult returns the condition Tested. It is a pure function.
func testResult(token string, states []plan.ComponentState) metav1.Condition {
	var failed, running []string
	objects := 0
	for i := range states {
		st := &states[i]
		objects += st.Objects
		message := fmt.Sprintf("component %q: %s", strings.TrimSuffix(st.Name, testSuffix), st.Message)
		switch {
		case st.Failed, st.Unhealthy:
			failed = append(failed, message)
		case !st.Ready:
			running = append(running, message)
		}
	}
	c := metav1.Condition{Type: appsv1.TestedCondition, Status: metav1.ConditionTrue,
		Reason: appsv1.TestsSucceededReason, Message: fmt.Sprintf("test %q: %d hooks have succeeded", token, objects)}
	switch {
	case len(running) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, fluxmeta.ProgressingReason
		c.Message = fmt.Sprintf("test %q: %s", token, strings.Join(slices.Concat(failed, running), "; "))
	case len(failed) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, appsv1.TestsFailedReason
		c.Message = fmt.Sprintf("test %q: %s", token, strings.Join(failed, "; "))
	case objects == 0:
		c.Message = fmt.Sprintf("test %q: the stack has no charts with tests", token)
	}
	c.Message = reconcile.Truncate(c.Message, maxComponentMessage)
	return c
}
