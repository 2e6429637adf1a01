package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// manualFieldManager is the field manager of the manual changes.
const manualFieldManager = "kubectl-edit"

// manualChange is a change of an object of the install, made with kubectl.
type manualChange struct {
	command    string
	kind       schema.GroupVersionKind
	name       string
	do         func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error
	correction string // how the controller corrects it, as a past participle
}

var manualChanges = []manualChange{
	{
		command: "kubectl set image",
		kind:    schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, name: "frontend",
		do: func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
			patch := `{"spec":{"template":{"spec":{"containers":[{"name":"frontend","image":"docker.io/library/nginx:latest"}]}}}}`
			return c.Patch(ctx, u, client.RawPatch(types.StrategicMergePatchType, []byte(patch)),
				client.FieldOwner(manualFieldManager))
		},
		correction: "reverted",
	},
	{
		command: "kubectl delete",
		kind:    schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, name: "shop-settings",
		do: func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
			return c.Delete(ctx, u)
		},
		correction: "recreated",
	},
}

// drift changes objects manually and shows their correction.
func (d *demo) drift(ctx context.Context) error {
	d.printHeading("DRIFT", "manual changes with kubectl")
	revision, err := d.repository.revision(ctx)
	if err != nil {
		return err
	}
	var all []string
	for _, x := range manualChanges {
		name := fmt.Sprintf("%s %s/%s", x.kind.Kind, namespace, x.name)
		d.draw("  " + d.yellow("✗ ") + name + ": " + x.command)
		took, seen, err := d.changeManually(ctx, &x)
		d.draw()
		if err != nil {
			return fmt.Errorf("waiting for %s to be %s after %s: %w", name, x.correction, x.command, err)
		}
		d.line("  %s %s: %s", d.yellow("✗"), name, x.command)
		d.fields(seen)
		d.line("  %s %s after %s", d.green("✓"), x.correction, d.bold(seconds(took)))
		all = append(all, fmt.Sprintf("%s %s in %s", x.kind.Kind, x.correction, seconds(took)))
	}
	d.keepLive()
	if err := d.showEvents(ctx); err != nil {
		return err
	}
	err = cluster.Await(ctx, "the install to become ready", actTimeout, func(ctx context.Context) error {
		src, err := d.getSource(ctx)
		if err != nil {
			return err
		}
		in, err := d.getInstall(ctx)
		if err != nil {
			return err
		}
		if text, ok := d.state(src, in, revision); !ok {
			return fmt.Errorf("the install is not ready: %s", text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.summary = append(d.summary, fmt.Sprintf("%-10s %s", "drift", strings.Join(all, ", ")))
	return nil
}

// changeManually makes a change, waits for its correction, and returns the time in between and the
// changed fields. It uses a watch, so that a poll interval does not distort the time.
func (d *demo) changeManually(ctx context.Context, x *manualChange) (time.Duration, []fieldChange, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(x.kind)
	if err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: x.name}, u); err != nil {
		return 0, nil, err
	}
	healthy := fieldsOf(u)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(x.kind.GroupVersion().WithKind(x.kind.Kind + "List"))
	w, err := d.client.Watch(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": x.name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: u.GetResourceVersion()}})
	if err != nil {
		return 0, nil, err
	}
	defer w.Stop()
	if err := x.do(ctx, d.client, u.DeepCopy()); err != nil {
		return 0, nil, err
	}
	return awaitCorrection(ctx, w, healthy)
}

// awaitCorrection returns the time from the first event with the changed object to the first event
// with the original fields.
func awaitCorrection(ctx context.Context, w watch.Interface,
	healthy fields) (took time.Duration, seen []fieldChange, err error) {
	var broken time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		case e, ok := <-w.ResultChan():
			if !ok {
				return 0, nil, fmt.Errorf("the watch ended: %w", context.Cause(ctx))
			}
			u, isObject := e.Object.(*unstructured.Unstructured)
			if !isObject || e.Type == watch.Error {
				return 0, nil, fmt.Errorf("the watch failed: %v", e.Object)
			}
			differs := healthy.compare(fieldsOf(u))
			original := e.Type != watch.Deleted && len(differs) == 0
			switch {
			case !original && broken.IsZero():
				broken, seen = time.Now(), differs
			case original && !broken.IsZero():
				return time.Since(broken), seen, nil
			}
		}
	}
}

// showEvents waits for the DriftCorrected events of the install and prints their messages.
func (d *demo) showEvents(ctx context.Context) error {
	return cluster.Await(ctx, "the DriftCorrected events", actTimeout, func(ctx context.Context) error {
		var list corev1.EventList
		if err := d.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var found []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == installName && e.InvolvedObject.Kind == "KsctlInstall" &&
				e.Reason == "DriftCorrected" {
				found = append(found, e.Message)
			}
		}
		if len(found) < len(manualChanges) {
			return fmt.Errorf("found %d of %d DriftCorrected events", len(found), len(manualChanges))
		}
		for _, message := range found {
			d.line("  %s", d.dim("event DriftCorrected: "+message))
		}
		return nil
	})
}
