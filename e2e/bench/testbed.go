package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // commits are named so
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
	// sourceNamespace and sourceName are where the one source is.
	sourceNamespace = "bench-source"
	sourceName      = "fleet"
	// parallel is how many requests the benchmark itself makes at a time.
	parallel = 16
	nodes    = 20
)

// world is a fresh control plane with the source that all installs use.
type world struct {
	*harness.Harness
	commits  int
	revision string // as the peer calls it
	source   source
}

// newWorld starts a control plane that has the kinds of Flux and ours.
func newWorld(ctx context.Context) (*world, error) {
	h, err := harness.Start(ctx, cluster.Options{Nodes: nodes, Audit: true, CRDPaths: []string{besides("../install/testdata/crds")}})
	if err != nil {
		return nil, err
	}
	h.Shipped = true // as the peers' tools are
	return &world{Harness: h}, nil
}

// besides is a path relative to this file's folder.
func besides(path string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), path)
}

// prepare makes the source's and the installs' namespaces, each with an account
// that may do everything in it, and waits until pods can be made in them.
func (w *world) prepare(ctx context.Context, sites []site) error {
	if err := w.Plane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sourceNamespace}}); err != nil {
		return err
	}
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: sourceNamespace, Name: sourceName},
		Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/fleet", Interval: metav1.Duration{Duration: time.Hour}}}
	if err := w.Plane.Client().Create(ctx, repository); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, s := range sites {
		namespaces[s.Namespace] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for ns := range namespaces {
		g.Go(func() error { return w.prepareNamespace(ctx, ns) })
	}
	return g.Wait()
}

func (w *world) prepareNamespace(ctx context.Context, ns string) error {
	meta := metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: harness.Deployer}}},
	} {
		if err := w.Plane.Client().Create(ctx, o); err != nil {
			return err
		}
	}
	return poll(ctx, func() (bool, error) {
		var account corev1.ServiceAccount
		err := w.Plane.Client().Get(ctx, types.NamespacedName{Namespace: ns, Name: "default"}, &account)
		return err == nil, client.IgnoreNotFound(err)
	})
}

// poll asks until the answer is yes.
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

// publish offers a source as a new artifact of the GitRepository: its archive, and then
// the status that names it.
func (w *world) publish(ctx context.Context, s source) (string, error) {
	revision := fmt.Sprintf("main@sha1:%x", sha1.Sum(fmt.Append(nil, w.commits))) //nolint:gosec // a name
	a, err := w.Server.Publish("gitrepository/"+sourceNamespace+"/"+sourceName, s.tree(), revision)
	if err != nil {
		return "", err
	}
	var repository sourcev1.GitRepository
	if err := w.Plane.Client().Get(ctx, types.NamespacedName{Namespace: sourceNamespace, Name: sourceName}, &repository); err != nil {
		return "", err
	}
	repository.Status.Artifact = &a
	repository.Status.ObservedGeneration = repository.Generation
	repository.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded",
		Message: "stored artifact for revision " + revision, LastTransitionTime: metav1.Now(), ObservedGeneration: repository.Generation}}
	return revision, w.Plane.Client().Status().Update(ctx, &repository)
}

// each does something for every site, some at a time.
func each(ctx context.Context, sites []site, do func(ctx context.Context, s site) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, s := range sites {
		g.Go(func() error { return do(ctx, s) })
	}
	return g.Wait()
}
