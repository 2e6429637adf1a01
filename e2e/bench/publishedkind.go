package main

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const kindGroup = "bench.example.com"

// servedKind is the part of a stack that serves the kind App.
const servedKind = `  serves:
    group: ` + kindGroup + `
    kind: App
    versions: [{name: v1}]
    install: {interval: 1h}
`

// kindSource is the source of installs that can also be objects of the kind App.
var kindSource = source{"app": {name: "app", value: "1", kind: true}}

// publishedKind runs the controller of this repository. Its installs are objects of the kind App.
type publishedKind struct{ ours }

// prepare publishes the kind.
func (k *publishedKind) prepare(ctx context.Context, w *testbed) error {
	if err := k.ours.prepare(ctx, w); err != nil {
		return err
	}
	if err := harness.AllowKinds(ctx, w.ControlPlane, kindGroup); err != nil {
		return err
	}
	if _, err := w.publish(ctx, kindSource.withValue("0")); err != nil {
		return err
	}
	app := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: appsv1.KsctlKindSpec{
		SourceRef: appsv1.SourceRef{Kind: "GitRepository", Namespace: sourceNamespace, Name: sourceName},
		Path:      "stacks/app", Stack: "app", ServiceAccountName: harness.Deployer}}
	if err := w.ControlPlane.Client().Create(ctx, app); err != nil {
		return err
	}
	if err := k.start(ctx); err != nil {
		return err
	}
	err := cluster.Await(ctx, "the kind to be served", time.Minute, func(ctx context.Context) error {
		if err := w.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(app.Status.Conditions, appsv1.ReadyCondition) {
			return fmt.Errorf("KsctlKind app: %+v", app.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return k.stop()
}

func (k *publishedKind) start(ctx context.Context) error {
	return k.startWith(ctx, "--kind-groups="+kindGroup)
}

func (*publishedKind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: kindGroup, Version: "v1", Resource: "apps"}
}

func (*publishedKind) installObject(s installSpec, _ time.Duration) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kindGroup + "/v1", "kind": "App"}}
	u.SetNamespace(s.Namespace)
	u.SetName(s.Name)
	return u
}
