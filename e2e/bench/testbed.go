package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // the format of a Git commit id; no security use
	"fmt"
	"maps"
	"slices"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const (
	// sourceNamespace and sourceName identify the source of all installs.
	sourceNamespace = "bench-source"
	sourceName      = "fleet"
	// parallel is the number of concurrent requests of the benchmark itself.
	parallel = 16
	nodes    = 20
)

// testbed is a new control plane with the source of all installs.
type testbed struct {
	*harness.Harness
	commits  int
	revision string // revision of source, as the peer reports it
	source   source
}

// newTestbed starts a control plane with our CRDs and Flux' source CRDs.
func newTestbed(ctx context.Context) (*testbed, error) {
	h, err := harness.Start(ctx,
		cluster.Options{Nodes: nodes, Audit: true, CRDPaths: []string{harness.RepoPath("e2e/install/testdata/crds")}})
	if err != nil {
		return nil, err
	}
	h.ReleaseBuild = true // the peers are release builds, too
	return &testbed{Harness: h}, nil
}

// prepare creates the namespace of the source, and the namespaces of the installs, each with an
// account that has all permissions in it. It waits until pods can be created in them.
func (w *testbed) prepare(ctx context.Context, specs []installSpec) error {
	manifests := fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %[2]s, namespace: %[1]s}
spec: {url: "https://git.example.com/fleet", interval: 1h}
`, sourceNamespace, sourceName)
	if err := w.ControlPlane.ApplyYAML(ctx, manifests); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, s := range specs {
		namespaces[s.Namespace] = true
	}
	return forEach(ctx, parallel, slices.Collect(maps.Keys(namespaces)), w.prepareNamespace)
}

func (w *testbed) prepareNamespace(ctx context.Context, ns string) error {
	manifests := fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[2]s, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`, ns, harness.Deployer)
	if err := w.ControlPlane.ApplyYAML(ctx, manifests); err != nil {
		return err
	}
	return w.ControlPlane.AwaitServiceAccount(ctx, ns)
}

// publish publishes a source as a new artifact of the GitRepository: first the archive, then the
// status with its URL.
func (w *testbed) publish(ctx context.Context, s source) (string, error) {
	// nolint:gosec // a revision, no security use
	revision := fmt.Sprintf("main@sha1:%x", sha1.Sum(fmt.Append(nil, w.commits)))
	a, err := w.ArtifactServer.Publish("gitrepository/"+sourceNamespace+"/"+sourceName, s.tree(), revision)
	if err != nil {
		return "", err
	}
	var repository sourcev1.GitRepository
	if err := w.ControlPlane.Client().Get(ctx, types.NamespacedName{Namespace: sourceNamespace, Name: sourceName},
		&repository); err != nil {
		return "", err
	}
	repository.Status.Artifact = &a
	repository.Status.ObservedGeneration = repository.Generation
	repository.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded",
		Message: "stored artifact for revision " + revision, LastTransitionTime: metav1.Now(),
		ObservedGeneration: repository.Generation}}
	return revision, w.ControlPlane.Client().Status().Update(ctx, &repository)
}

// forEach calls do for every item, with at most limit calls at a time; -1 means no limit.
func forEach[T any](ctx context.Context, limit int, items []T, do func(ctx context.Context, item T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for _, item := range items {
		g.Go(func() error { return do(ctx, item) })
	}
	return g.Wait()
}
