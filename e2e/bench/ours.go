package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/programs"
)

// ours runs the controller of this repository, built as a release.
type ours struct {
	processPeer
	ksctlPeer
	options options
	pprof   string
}

func (o *ours) prepare(ctx context.Context, w *testbed) error {
	o.testbed = w
	_, err := w.Build(ctx, programs.Controller) // so that start does not include the build
	return err
}

func (o *ours) start(ctx context.Context) error { return o.startWith(ctx) }

// startWith starts the controller with flags.
func (o *ours) startWith(ctx context.Context, flags ...string) error {
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

func (o *ours) pprofAddress() string { return o.pprof }

// install returns a KsctlInstall.
func install(s installSpec, interval time.Duration) *appsv1.KsctlInstall {
	in := harness.NewInstall(s.Namespace, s.Name)
	in.Spec.Schedule = appsv1.Schedule{Interval: &metav1.Duration{Duration: interval}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: "GitRepository", Namespace: sourceNamespace, Name: sourceName}
	in.Spec.Path = "stacks/" + s.Folder
	if s.DependsOn != nil {
		in.Spec.DependsOn = []appsv1.Dependency{{Namespace: s.DependsOn.Namespace, Name: s.DependsOn.Name}}
	}
	return in
}
