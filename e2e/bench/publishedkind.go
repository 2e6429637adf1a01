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

const siteGroup = "bench.example.com"

// servesSite is the part of a stack that serves the kind Site.
const servesSite = `  serves:
    group: ` + siteGroup + `
    kind: Site
    versions: [{name: v1}]
    install: {interval: 1h}
`

// kindSource is the source of installs that can also be objects of the kind Site.
var kindSource = source{"app": {name: "app", value: "1", kind: true}}

// publishedKind runs the controller of this repository. Its installs are objects of the kind Site.
type publishedKind struct{ ours }

// prepare publishes the kind.
func (k *publishedKind) prepare(ctx context.Context, w *testbed) error {
	if err := k.ours.prepare(ctx, w); err != nil {
		return err
	}
	if err := harness.AllowKinds(ctx, w.ControlPlane, siteGroup); err != nil {
		return err
	}
	if _, err := w.publish(ctx, kindSource.withValue("0")); err != nil {
		return err
	}
	site := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: appsv1.KsctlKindSpec{
		SourceRef: appsv1.SourceRef{Kind: "GitRepository", Namespace: sourceNamespace, Name: sourceName},
		Path:      "stacks/app", Stack: "app", ServiceAccountName: harness.Deployer}}
	if err := w.ControlPlane.Client().Create(ctx, site); err != nil {
		return err
	}
	if err := k.start(ctx); err != nil {
		return err
	}
	err := cluster.Await(ctx, "the kind to be served", time.Minute, func(ctx context.Context) error {
		if err := w.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(site), site); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(site.Status.Conditions, appsv1.ReadyCondition) {
			return fmt.Errorf("KsctlKind site: %+v", site.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return k.stop()
}

func (k *publishedKind) start(ctx context.Context) error {
	return k.startWith(ctx, "--kind-groups="+siteGroup)
}

func (*publishedKind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: siteGroup, Version: "v1", Resource: "sites"}
}

func (*publishedKind) installObject(s installSpec, _ time.Duration) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": siteGroup + "/v1", "kind": "Site"}}
	u.SetNamespace(s.Namespace)
	u.SetName(s.Name)
	return u
}
