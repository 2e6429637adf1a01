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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness/argo"
)

// argoCD is the repo server and the application controller of Argo CD, on a Git
// repository with the tree that the others have as an artifact. They act with their own
// rights, as they do by default. Once stopped it can't be started again.
type argoCD struct {
	watcher
	world    *world
	git      *gitserver.Server
	repo     *gitserver.Repo
	url      string // of the repository
	programs *argo.Programs
}

// foreground says how to delete, as Argo CD does without it. The API server warns of each
// finalizer that has no path.
const foreground = "/foreground"

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

func (a *argoCD) prepare(ctx context.Context, w *world) error {
	a.world = w
	definitions, err := argo.Definitions(ctx)
	if err != nil {
		return err
	}
	for _, file := range definitions {
		if err := w.Plane.Apply(ctx, file); err != nil {
			return err
		}
	}
	settings, err := argo.Shipped(ctx)
	if err != nil {
		return err
	}
	if err := argo.Prepare(ctx, w.Plane, argo.Namespace, settings); err != nil {
		return err
	}
	if err := a.serve(ctx, filepath.Join(w.Plane.Dir(), "repositories")); err != nil {
		return err
	}
	if a.programs, err = argo.New(ctx, w.Harness, os.Stderr); err != nil {
		return err
	}
	// As kustomize-controller has it.
	a.programs.Env = append(a.programs.Env, "ARGOCD_K8S_CLIENT_QPS=500", "ARGOCD_K8S_CLIENT_BURST=1000")
	return nil
}

// serve starts a Git server with the one repository.
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

// start has as many processors as Argo CD's pages advise for 1,000 Applications, and no
// look at the repository within the hour, as the others' interval is.
func (a *argoCD) start(ctx context.Context) error {
	p, repoServer, err := a.programs.StartRepoServer(ctx, argo.Namespace)
	if err := a.run(ctx, p, err); err != nil {
		return err
	}
	p, err = a.programs.StartController(ctx, argo.Namespace, repoServer, "--status-processors=50", "--operation-processors=25",
		"--app-resync=3600", "--app-resync-jitter=0")
	return a.run(ctx, p, err)
}

func (a *argoCD) stop() error {
	var err error
	for _, p := range slices.Backward(a.processes()) {
		select {
		case <-p.Done():
			err = errors.Join(err, fmt.Errorf("a program of Argo CD ended by itself; its log:\n%s", p.Log()))
		default:
			_ = p.Stop() // it is told to end, and may say so with its status
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

func (*argoCD) user() string { return cluster.ServiceAccountUser(argo.Namespace, argo.Account) }

func (*argoCD) resource() schema.GroupVersionResource { return applications }

// wish is an Application, which says nothing of what a site depends on: Argo CD knows no
// such thing between Applications.
func (a *argoCD) wish(s site, _ time.Duration) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": applications.GroupVersion().String(), "kind": "Application",
		"metadata": map[string]any{"namespace": argo.Namespace, "name": s.Namespace + "-" + s.Name, "finalizers": []any{argo.Finalizer + foreground}},
		"spec": map[string]any{"project": "default",
			"source":      map[string]any{"repoURL": a.url, "targetRevision": "refs/heads/" + gitserver.DefaultBranch, "path": "stacks/" + s.Folder + "/main"},
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": s.Namespace},
			"syncPolicy":  map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true}}},
	}}
}

// publish is a push; the revision is the commit's id.
func (a *argoCD) publish(ctx context.Context, src source) (string, error) {
	return a.repo.CommitDir(ctx, src.tree(), fmt.Sprintf("commit %d", a.world.commits))
}

// committed does what Argo CD's webhook does after a push: without it, Argo CD would not
// look for minutes.
func (a *argoCD) committed(ctx context.Context, sites []site, _ source) error {
	return each(ctx, sites, func(ctx context.Context, s site) error {
		return a.world.Plane.Client().Patch(ctx, a.wish(s, 0), argo.Refresh)
	})
}

func (*argoCD) readyAt(application *unstructured.Unstructured) string {
	sync, _, _ := unstructured.NestedString(application.Object, "status", "sync", "status")
	health, _, _ := unstructured.NestedString(application.Object, "status", "health", "status")
	if sync != "Synced" || health != "Healthy" {
		return ""
	}
	revision, _, _ := unstructured.NestedString(application.Object, "status", "sync", "revision")
	return revision
}

func (a *argoCD) ask() (client.Patch, check) { return argo.Refresh, a.refreshed(time.Now()) }

// refreshed is met by Applications that were compared with their repository since then,
// as nobody asks for any more, and are ready.
func (a *argoCD) refreshed(since time.Time) check {
	since = since.Truncate(time.Second) // as their status has it
	return func(_ types.NamespacedName, o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		_, asked := o.GetAnnotations()[argo.RefreshAnnotation]
		text, _, _ := unstructured.NestedString(o.Object, "status", "reconciledAt")
		at, err := time.Parse(time.RFC3339, text)
		return !asked && err == nil && !at.Before(since) && a.readyAt(o) != ""
	}
}

// profiles are served only when a file of its image says so.
func (*argoCD) profiles() string { return "" }
