package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/tools"
)

const (
	fluxNamespace = "flux-system"
	fluxAccount   = "kustomize-controller"
)

// flux runs Flux' kustomize-controller. It uses its own permissions, without impersonation, which
// is the default and its fastest mode.
type flux struct {
	processPeer
	toolkitPeer
	options options
	binary  string
	config  *rest.Config
}

var kustomizations = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1",
	Resource: "kustomizations"}

func (f *flux) prepare(ctx context.Context, w *testbed) error {
	f.testbed = w
	paths, err := tools.Build(ctx, os.Stderr, tools.KustomizeController)
	if err != nil {
		return err
	}
	f.binary = paths[tools.KustomizeController]
	module, err := tools.ModuleDir(ctx, tools.KustomizeController)
	if err != nil {
		return err
	}
	if err := w.ControlPlane.Apply(ctx, filepath.Join(module, "config", "crd", "bases")); err != nil {
		return err
	}
	err = w.ControlPlane.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cluster-reconciler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`, fluxNamespace, fluxAccount))
	if err != nil {
		return err
	}
	f.config, err = w.ControlPlane.ConfigFor(ctx, fluxNamespace, fluxAccount)
	return err
}

func (f *flux) start(ctx context.Context) error {
	p, err := f.testbed.StartProgram(f.binary, f.config, "--concurrent=20", "--watch-all-namespaces=true",
		"--enable-leader-election=false",
		"--kube-api-qps=500", "--kube-api-burst=1000", "--requeue-dependency=2s", "--http-retry=2",
		"--feature-gates=ExternalArtifact=true")
	return f.run(ctx, p, err)
}

func (*flux) user() string { return cluster.ServiceAccountUser(fluxNamespace, fluxAccount) }

func (*flux) resource() schema.GroupVersionResource { return kustomizations }

func (*flux) installObject(s installSpec, interval time.Duration) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kustomizations.GroupVersion().String(), "kind": "Kustomization",
		"metadata": map[string]any{"namespace": s.Namespace, "name": s.Name},
		"spec": map[string]any{"interval": interval.String(), "prune": true, "wait": true, "timeout": "10m",
			"path": "./stacks/" + s.Folder + "/main", "targetNamespace": s.Namespace,
			"sourceRef": map[string]any{"kind": "GitRepository", "namespace": sourceNamespace, "name": sourceName}},
	}}
	if s.DependsOn != nil {
		_ = unstructured.SetNestedSlice(u.Object,
			[]any{map[string]any{"namespace": s.DependsOn.Namespace, "name": s.DependsOn.Name}}, "spec", "dependsOn")
	}
	return u
}

// pprofAddress returns the metrics address, where the controller also serves profiles.
func (f *flux) pprofAddress() string { return f.processes()[0].MetricsAddress }
