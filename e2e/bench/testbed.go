package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // the format of a Git commit id; no security use
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	h, err := harness.Start(ctx, cluster.Options{Nodes: nodes, Audit: true, CRDPaths: []string{pathFromHere("../install/testdata/crds")}})
	if err != nil {
		return nil, err
	}
	h.ReleaseBuild = true // the peers are release builds, too
	return &testbed{Harness: h}, nil
}

// pathFromHere returns the absolute path of a path relative to this file's folder.
func pathFromHere(path string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), path)
}

// prepare creates the namespace of the source, and the namespaces of the installs, each with an
// account that has all permissions in it. It waits until pods can be created in them.
func (w *testbed) prepare(ctx context.Context, specs []installSpec) error {
	if err := w.ControlPlane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sourceNamespace}}); err != nil {
		return err
	}
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: sourceNamespace, Name: sourceName},
		Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/fleet", Interval: metav1.Duration{Duration: time.Hour}}}
	if err := w.ControlPlane.Client().Create(ctx, repository); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, s := range specs {
		namespaces[s.Namespace] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for ns := range namespaces {
		g.Go(func() error { return w.prepareNamespace(ctx, ns) })
	}
	return g.Wait()
}

func (w *testbed) prepareNamespace(ctx context.Context, ns string) error {
	meta := metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: harness.Deployer}}},
	} {
		if err := w.ControlPlane.Client().Create(ctx, o); err != nil {
			return err
		}
	}
	return poll(ctx, func() (bool, error) {
		var account corev1.ServiceAccount
		err := w.ControlPlane.Client().Get(ctx, types.NamespacedName{Namespace: ns, Name: "default"}, &account)
		return err == nil, client.IgnoreNotFound(err)
	})
}

// poll calls ask until it returns true or an error.
func poll(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// publish publishes a source as a new artifact of the GitRepository: first the archive, then the
// status with its URL.
func (w *testbed) publish(ctx context.Context, s source) (string, error) {
	revision := fmt.Sprintf("main@sha1:%x", sha1.Sum(fmt.Append(nil, w.commits))) //nolint:gosec // a revision, no security use
	a, err := w.ArtifactServer.Publish("gitrepository/"+sourceNamespace+"/"+sourceName, s.tree(), revision)
	if err != nil {
		return "", err
	}
	var repository sourcev1.GitRepository
	if err := w.ControlPlane.Client().Get(ctx, types.NamespacedName{Namespace: sourceNamespace, Name: sourceName}, &repository); err != nil {
		return "", err
	}
	repository.Status.Artifact = &a
	repository.Status.ObservedGeneration = repository.Generation
	repository.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded",
		Message: "stored artifact for revision " + revision, LastTransitionTime: metav1.Now(), ObservedGeneration: repository.Generation}}
	return revision, w.ControlPlane.Client().Status().Update(ctx, &repository)
}

// forEachInstall calls do for every install, with limited concurrency.
func forEachInstall(ctx context.Context, specs []installSpec, do func(ctx context.Context, s installSpec) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, s := range specs {
		g.Go(func() error { return do(ctx, s) })
	}
	return g.Wait()
}
