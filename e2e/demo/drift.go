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
)

// person is the field manager of what is broken by hand.
const person = "kubectl-edit"

// damage is one thing that somebody does to an object of the install.
type damage struct {
	what    string
	kind    schema.GroupVersionKind
	name    string
	do      func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error
	righted string
}

var damages = []damage{
	{
		what: "kubectl set image",
		kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, name: "frontend",
		do: func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
			patch := `{"spec":{"template":{"spec":{"containers":[{"name":"frontend","image":"docker.io/library/nginx:latest"}]}}}}`
			return c.Patch(ctx, u, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner(person))
		},
		righted: "put right",
	},
	{
		what: "kubectl delete",
		kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, name: "shop-settings",
		do: func(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
			return c.Delete(ctx, u)
		},
		righted: "back",
	},
}

// drift breaks objects by hand and shows them being put right.
func (d *demo) drift(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	d.act("DRIFT", "somebody with kubectl knows better")
	revision, err := d.repository.revision(ctx)
	if err != nil {
		return err
	}
	var all []string
	for _, x := range damages {
		name := fmt.Sprintf("%s %s/%s", x.kind.Kind, namespace, x.name)
		d.draw("  " + d.yellow("✗ ") + name + ": " + x.what)
		took, seen, err := d.hurt(ctx, &x)
		d.draw()
		if err != nil {
			return fmt.Errorf("%s: %s, and it is not %s: %w", name, x.what, x.righted, err)
		}
		d.line("  %s %s: %s", d.yellow("✗"), name, x.what)
		d.fields(seen)
		d.line("  %s %s after %s", d.green("✓"), x.righted, d.bold(seconds(took)))
		all = append(all, fmt.Sprintf("%s %s in %s", x.kind.Kind, x.righted, seconds(took)))
	}
	d.settle()
	if err := d.told(ctx); err != nil {
		return err
	}
	err = until(ctx, refresh, func(ctx context.Context) error {
		src, err := d.getSource(ctx)
		if err != nil {
			return err
		}
		in, err := d.getInstall(ctx)
		if err != nil {
			return err
		}
		if text, ok := d.state(src, in, revision); !ok {
			return fmt.Errorf("the install says: %s", text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.summary = append(d.summary, fmt.Sprintf("%-10s %s", "drift", strings.Join(all, ", ")))
	return nil
}

// hurt does the damage and returns how long the API server had it that way, and
// the fields that differed. All that counts is what a watch tells, so that no poll
// blurs the time.
func (d *demo) hurt(ctx context.Context, x *damage) (time.Duration, []fieldChange, error) {
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
	return righted(ctx, w, healthy)
}

// righted returns the time from the first event that shows the object broken to
// the first that shows it as it was.
func righted(ctx context.Context, w watch.Interface, healthy fields) (took time.Duration, seen []fieldChange, err error) {
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
			whole := e.Type != watch.Deleted && len(differs) == 0
			switch {
			case !whole && broken.IsZero():
				broken, seen = time.Now(), differs
			case whole && !broken.IsZero():
				return time.Since(broken), seen, nil
			}
		}
	}
}

// told shows what the install's events say of it.
func (d *demo) told(ctx context.Context) error {
	return until(ctx, refresh, func(ctx context.Context) error {
		var list corev1.EventList
		if err := d.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var found []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == installName && e.InvolvedObject.Kind == "KsctlInstall" && e.Reason == "DriftCorrected" {
				found = append(found, e.Message)
			}
		}
		if len(found) < len(damages) {
			return fmt.Errorf("%d of %d events of it are there", len(found), len(damages))
		}
		for _, message := range found {
			d.line("  %s", d.dim("event DriftCorrected: "+message))
		}
		return nil
	})
}
