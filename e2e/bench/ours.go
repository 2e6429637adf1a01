package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// ours runs the controller of this repository, built as a release.
type ours struct {
	processPeer
	toolkitPeer
	options options
	pprof   string
}

func (o *ours) prepare(ctx context.Context, w *testbed) error {
	o.testbed = w
	_, err := w.BuildController(ctx) // so that start does not include the build
	return err
}

func (o *ours) start(ctx context.Context) error {
	var flags []string
	if o.options.concurrent > 0 {
		flags = append(flags, fmt.Sprintf("--concurrent=%d", o.options.concurrent))
	}
	if o.options.profile {
		addr, err := cluster.FreeAddress()
		if err != nil {
			return err
		}
		o.pprof = addr
		flags = append(flags, "--pprof-addr="+addr)
	}
	p, err := o.testbed.StartProcess(ctx, o.testbed.Config, flags...)
	return o.run(ctx, p, err)
}

func (*ours) user() string {
	return cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount)
}

func (*ours) resource() schema.GroupVersionResource { return installResource }

func (*ours) installObject(s installSpec, interval time.Duration) client.Object {
	return install(s, interval)
}

func (o *ours) pprofAddress() string { return o.pprof }

// install returns a KsctlInstall.
func install(s installSpec, interval time.Duration) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec: appsv1.KsctlInstallSpec{Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: interval}},
			SourceRef: appsv1.SourceRef{Kind: "GitRepository", Namespace: sourceNamespace, Name: sourceName},
			Path:      "stacks/" + s.Folder, Stack: "app", ServiceAccountName: harness.Deployer}}
	if s.DependsOn != nil {
		in.Spec.DependsOn = []appsv1.Dependency{{Namespace: s.DependsOn.Namespace, Name: s.DependsOn.Name}}
	}
	return in
}
