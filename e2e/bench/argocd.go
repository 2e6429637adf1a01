package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness/argo"
)

// argoCD runs the repo server and the application controller of Argo CD. Their source is a Git
// repository with the same tree as the other peers' artifact. They use their own permissions, as by
// default. A stopped argoCD can't be started again.
type argoCD struct {
	processPeer
	testbed  *testbed
	git      *gitserver.Server
	repo     *gitserver.Repo
	url      string // clone URL of the repository
	programs *argo.Runner
}

// foregroundSuffix is the suffix of Argo CD's finalizer for foreground deletion, which is also the
// default. With it the API server logs no warning about a finalizer without a path.
const foregroundSuffix = "/foreground"

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

func (a *argoCD) prepare(ctx context.Context, w *testbed) error {
	a.testbed = w
	definitions, err := argo.CRDPaths(ctx)
	if err != nil {
		return err
	}
	for _, file := range definitions {
		if err := w.ControlPlane.Apply(ctx, file); err != nil {
			return err
		}
	}
	settings, err := argo.DefaultSettings(ctx)
	if err != nil {
		return err
	}
	if err := argo.PrepareNamespace(ctx, w.ControlPlane, argo.Namespace, settings); err != nil {
		return err
	}
	if err := a.serve(ctx, filepath.Join(w.ControlPlane.Dir(), "repositories")); err != nil {
		return err
	}
	if a.programs, err = argo.New(ctx, w.Harness, os.Stderr); err != nil {
		return err
	}
	// The same limits as kustomize-controller's.
	a.programs.Env = append(a.programs.Env, "ARGOCD_K8S_CLIENT_QPS=500", "ARGOCD_K8S_CLIENT_BURST=1000")
	return nil
}

// serve starts a Git server with one repository.
func (a *argoCD) serve(ctx context.Context, dir string) (err error) {
	if err = os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	if a.git, err = gitserver.New(dir); err != nil {
		return err
	}
	if a.repo, err = a.git.NewRepo(ctx, sourceName); err != nil {
		return err
	}
	a.url = a.repo.URL()
	return nil
}

// start uses the numbers of processors that Argo CD's documentation recommends for 1,000
// Applications, and a resync interval of an hour, like the other peers.
func (a *argoCD) start(ctx context.Context) error {
	p, repoServer, err := a.programs.StartRepoServer(ctx, argo.Namespace)
	if err := a.run(ctx, p, err); err != nil {
		return err
	}
	p, err = a.programs.StartController(ctx, argo.Namespace, repoServer, "--status-processors=50",
		"--operation-processors=25",
		"--app-resync=3600", "--app-resync-jitter=0")
	return a.run(ctx, p, err)
}

func (a *argoCD) stop() error {
	var err error
	for _, p := range slices.Backward(a.processes()) {
		select {
		case <-p.Done():
			err = errors.Join(err, fmt.Errorf("an Argo CD program ended unexpectedly; its log:\n%s", p.Log()))
		default:
			_ = p.Stop() // the programs may exit with a nonzero status on SIGTERM
		}
	}
	a.running.Store(nil)
	if a.programs != nil {
		err = errors.Join(err, a.programs.Close())
	}
	if a.git != nil {
		err = errors.Join(err, a.git.Close())
	}
	return err
}

func (*argoCD) user() string { return cluster.ServiceAccountUser(argo.Namespace, argo.ServiceAccount) }

func (*argoCD) resource() schema.GroupVersionResource { return applications }

// installObject returns an Application. It ignores DependsOn, because Argo CD has no dependencies
// between Applications.
func (a *argoCD) installObject(s installSpec, _ time.Duration) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": applications.GroupVersion().String(), "kind": "Application",
		"metadata": map[string]any{"namespace": argo.Namespace, "name": s.Namespace + "-" + s.Name,
			"finalizers": []any{argo.Finalizer + foregroundSuffix}},
		"spec": map[string]any{"project": "default",
			"source": map[string]any{"repoURL": a.url, "targetRevision": "refs/heads/" + gitserver.DefaultBranch,
				"path": "stacks/" + s.Folder + "/main"},
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": s.Namespace},
			"syncPolicy":  map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true}}},
	}}
}

// publish commits the tree; the revision is the commit id.
func (a *argoCD) publish(ctx context.Context, src source) (string, error) {
	return a.repo.CommitDir(ctx, src.tree(), fmt.Sprintf("commit %d", a.testbed.commits))
}

// onCommitted refreshes the Applications as Argo CD's webhook does after a push. Without it, Argo
// CD would poll the repository minutes later.
func (a *argoCD) onCommitted(ctx context.Context, specs []installSpec, _ source) error {
	return forEach(ctx, parallel, specs, func(ctx context.Context, s installSpec) error {
		return a.testbed.ControlPlane.Client().Patch(ctx, a.installObject(s, 0), argo.RefreshPatch)
	})
}

func (*argoCD) readyRevision(application *unstructured.Unstructured) string {
	sync, _, _ := unstructured.NestedString(application.Object, "status", "sync", "status")
	health, _, _ := unstructured.NestedString(application.Object, "status", "health", "status")
	if sync != "Synced" || health != "Healthy" {
		return ""
	}
	revision, _, _ := unstructured.NestedString(application.Object, "status", "sync", "revision")
	return revision
}

func (a *argoCD) reconcileRequest() (client.Patch, objectPredicate) {
	return argo.RefreshPatch, a.refreshedSince(time.Now())
}

// refreshedSince matches ready Applications that were compared with their repository after a time
// and have no pending refresh request.
func (a *argoCD) refreshedSince(since time.Time) objectPredicate {
	since = since.Truncate(time.Second) // the precision of status.reconciledAt
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		_, pending := o.GetAnnotations()[argo.RefreshAnnotation]
		text, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt")
		at, err := time.Parse(time.RFC3339, text)
		return !pending && err == nil && !at.Before(since) && a.readyRevision(o) != ""
	}
}

// pprofAddress returns "": Argo CD serves profiles only if a file in its image enables them.
func (*argoCD) pprofAddress() string { return "" }
