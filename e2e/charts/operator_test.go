package charts_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// operator is a double of an operator. It sets a finalizer and defaults of its Widgets, and reports
// in their status that they are ready.
type operator struct {
	client client.WithWatch
	kind   schema.GroupVersionKind
}

const operatorFinalizer = "example.com/widget"

// run handles the Widgets of a namespace until the context ends. Their kind is served.
func (o operator) run(ctx context.Context, namespace string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(o.kind.GroupVersion().WithKind(o.kind.Kind + "List"))
	w, err := o.client.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if widget, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != "DELETED" {
			// After a conflict there is another event.
			if err := o.handle(ctx, widget); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) &&
				ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func (o operator) handle(ctx context.Context, widget *unstructured.Unstructured) error {
	if widget.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(widget, operatorFinalizer) {
			return o.client.Update(ctx, widget, client.FieldOwner("operator"))
		}
		return nil
	}
	if changed, err := setDefaults(widget); err != nil {
		return err
	} else if controllerutil.AddFinalizer(widget, operatorFinalizer) || changed {
		return o.client.Update(ctx, widget, client.FieldOwner("operator"))
	}
	if _, reported := widget.Object["status"]; reported {
		return nil
	}
	widget.Object["status"] = map[string]any{"observedGeneration": widget.GetGeneration(), "conditions": []any{
		map[string]any{"type": "Ready", "status": "True", "reason": "Made", "message": "",
			"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339)}}}
	return o.client.Status().Update(ctx, widget, client.FieldOwner("operator"))
}

// setDefaults sets fields that a Widget lacks: of the spec, of items of a list, and of an empty
// mapping.
func setDefaults(widget *unstructured.Unstructured) (changed bool, err error) {
	parts, _, err := unstructured.NestedSlice(widget.Object, "spec", "parts")
	if err != nil {
		return false, err
	}
	for _, part := range parts {
		if p, ok := part.(map[string]any); ok && p["mode"] == nil {
			p["mode"], changed = "fast", true
		}
	}
	if !changed {
		return false, nil
	}
	defaults := map[string]any{"parts": parts, "replicas": int64(1), "empty": map[string]any{"limit": "1Gi"}}
	for path, value := range defaults {
		if err := unstructured.SetNestedField(widget.Object, value, "spec", path); err != nil {
			return false, err
		}
	}
	return true, nil
}

var _ = Describe("An operator that sets finalizers and defaults of its custom resources", func() {
	It("does not cause a write by an install that reconciles every five seconds", suite.Repeat, func(ctx SpecContext) {
		ns := namespace(ctx)
		o := operator{client: h.ControlPlane.Client(),
			kind: schema.GroupVersionKind{Group: ns + ".example.com", Version: "v1", Kind: "Widget"}}
		in := newInstall(ns)
		in.Spec.Interval = &metav1.Duration{Duration: 5 * time.Second}
		in.apply(ctx, desired{chart: "operator", version: "1.0.0"})
		eventually(ctx, func() error {
			_, err := o.client.RESTMapper().RESTMapping(o.kind.GroupKind(), o.kind.Version)
			return err
		}, "the kind is served")
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- o.run(running, ns) }()
		DeferCleanup(func() {
			stop()
			Expect(<-done).To(Succeed())
		})
		eventually(ctx, func() error {
			for name, object := range objects(ctx, ns) {
				if object["kind"] == "Widget" && object["status"] == nil {
					return fmt.Errorf("%s has no status", name)
				}
			}
			return nil
		}, "the operator handles the Widgets")
		in.await(ctx, true)

		enough := 12 * time.Second // two intervals
		if suite.Long() {
			enough = 5 * time.Minute
		}
		mark := auditMark(ctx)
		Consistently(ctx, func() cluster.Requests {
			return in.requests(ctx, mark).Where(cluster.Write)
		}, enough, time.Second).Should(BeEmpty(), "the defaults are of the operator")
		in.await(ctx, true)
		in.remove(ctx)
		Expect(objects(ctx, ns)).To(BeEmpty(), "the operator removes its finalizers")
	})
})
