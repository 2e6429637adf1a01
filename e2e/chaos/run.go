package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/chaos/check"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
)

const (
	// convergence is how long everything may take to be Ready after the last fault.
	convergence = 2 * time.Minute
	// pollInterval is the interval of the sources.
	pollInterval = 3 * time.Second
	// minFaults is how often each kind of fault has to have run.
	minFaults = 5
)

// run is one chaos run.
type run struct {
	*world
	h       *harness.Harness
	repos   []*gitserver.Repo
	heads   []string
	process *harness.Process
	dir     string
	checker string
	foreign []check.Foreign
	// everything has the names of all objects before the first install.
	everything []string
	// lost are the namespaces without account, and denied those without its rights.
	lost, denied map[string]bool
	// faults counts the actions by name.
	faults map[string]int
	began  time.Time
	// logFile gets the logs of the controllers, if it is not empty. errorLines are the error lines
	// in them.
	logFile    string
	errorLines []string
}

// logf prints a line with the time since the start.
func (r *run) logf(format string, args ...any) {
	fmt.Printf("%6.1fs %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// recordLog records the log of the controller that has ended.
func (r *run) recordLog() {
	log := r.process.Log()
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, `"level":"error"`) {
			r.errorLines = append(r.errorLines, line)
		}
	}
	if r.logFile == "" {
		return
	}
	f, err := os.OpenFile(r.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.logf("writing the log: %v", err)
		return
	}
	_, err = f.WriteString(log)
	if err = errors.Join(err, f.Close()); err != nil {
		r.logf("writing the log: %v", err)
	}
}

// retry repeats a call until it succeeds: the API server may be down, or be starting.
func retry(ctx context.Context, doing string, do func() error) error {
	return cluster.Await(ctx, doing, time.Minute, func(context.Context) error { return do() })
}

func (r *run) client() client.Client { return r.h.ControlPlane.Client() }

// prepare creates repositories, namespaces, accounts and sources, starts the controller, and
// creates the installs.
func (r *run) prepare(ctx context.Context, server *gitserver.Server) error {
	r.lost, r.denied, r.faults = map[string]bool{}, map[string]bool{}, map[string]int{}
	for i := range repositoryCount {
		repo, err := server.NewRepo(ctx, fmt.Sprintf("repo%d", i))
		if err != nil {
			return err
		}
		r.repos, r.heads = append(r.repos, repo), append(r.heads, "")
		if err := r.commit(ctx, i); err != nil {
			return err
		}
	}
	for _, ns := range r.namespaces() {
		if err := r.client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			return err
		}
		if err := harness.CreateDeployer(ctx, r.h.ControlPlane, ns); err != nil {
			return err
		}
		for i, repo := range r.repos {
			src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("repo%d", i)}}
			src.Spec.Interval, src.Spec.RetryInterval = &metav1.Duration{Duration: pollInterval},
				&metav1.Duration{Duration: pollInterval}
			src.Spec.Git = &appsv1.GitSource{URL: repo.URL()}
			if err := r.client().Create(ctx, src); err != nil {
				return err
			}
		}
	}
	if err := r.startController(ctx); err != nil {
		return err
	}
	if err := r.recordEverything(ctx); err != nil {
		return err
	}
	for _, in := range r.installs {
		if err := r.createInstall(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// recordEverything records all objects of the cluster.
func (r *run) recordEverything(ctx context.Context) error {
	d, err := discovery.NewDiscoveryClientForConfig(r.h.ControlPlane.Config())
	if err != nil {
		return err
	}
	kinds, err := check.Kinds(d)
	if err != nil {
		return err
	}
	r.everything, err = check.Names(ctx, r.client(), kinds)
	return err
}

func (r *run) startController(ctx context.Context) (err error) {
	r.process, err = r.h.StartProcess(ctx, r.h.Config, "--owner-id="+r.prefix)
	return err
}

func (r *run) createInstall(ctx context.Context, in *install) error {
	x := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: in.name}}
	x.Spec = appsv1.KsctlInstallSpec{SourceRef: appsv1.SourceRef{Kind: "KsctlSource",
		Name: fmt.Sprintf("repo%d", in.repository)}, Path: "stacks", Stack: in.name,
		ServiceAccountName: harness.Deployer}
	x.Spec.RetryInterval = &metav1.Duration{Duration: 10 * time.Second}
	x.Spec.DependsOn = dependencies(in)
	x.Spec.Suspend = in.suspended
	return retry(ctx, "creating an install", func() error {
		x.ResourceVersion = ""
		if err := r.client().Create(ctx, x.DeepCopy()); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

func dependencies(in *install) (out []appsv1.Dependency) {
	for _, d := range in.dependsOn {
		out = append(out, appsv1.Dependency{Name: d.name, Namespace: d.namespace})
	}
	return out
}

// commit pushes the stacks of a repository.
func (r *run) commit(ctx context.Context, repository int) error {
	files := map[string]string{}
	for _, in := range r.installs {
		if in.repository == repository {
			maps.Copy(files, in.files())
		}
	}
	tree := artifacts.Files(files)
	id, err := r.repos[repository].CommitDir(ctx, tree, "change")
	r.heads[repository] = id
	return err
}

// awaitConvergence waits until each install is Ready with its head, and returns how long each took.
func (r *run) awaitConvergence(ctx context.Context) ([]time.Duration, error) {
	since := time.Now()
	want := r.expected(r.heads)
	took := map[string]time.Duration{}
	var left []string
	for time.Since(since) < convergence {
		var err error
		if left, err = check.Installs(ctx, r.client(), want); err == nil {
			for name := range want.Installs {
				_, ready := took[name]
				isLeft := slices.ContainsFunc(left, func(s string) bool {
					return strings.HasPrefix(s, "install "+name+" ")
				})
				switch {
				case isLeft:
					delete(took, name) // also if it was Ready in between
				case !ready:
					took[name] = time.Since(since)
				}
			}
			if len(left) == 0 {
				return slices.Sorted(maps.Values(took)), nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%d installs are not Ready %s after the last fault:\n%s", len(left), convergence,
		strings.Join(left, "\n"))
}

// check runs the checker against an expectation.
func (r *run) check(ctx context.Context, want check.Expected, name string) error {
	want.Foreign = r.foreign
	data, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, name+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.checker, file)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.h.ControlPlane.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w:\n%s", name, err, out)
	}
	r.logf("%s: the cluster has exactly what is expected (%d objects, %d foreign ones)", name, len(want.Objects),
		len(want.Foreign))
	return nil
}

// plantForeign creates objects that the controller must not touch: some with the marks of an object
// that it manages.
func (r *run) plantForeign(ctx context.Context) error {
	for i, in := range r.installs {
		if i%4 != 0 {
			continue
		}
		own := &corev1.ConfigMap{}
		if err := r.client().Get(ctx, client.ObjectKey{Namespace: in.namespace, Name: anchorPrefix + in.name},
			own); err != nil {
			return err
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "foreign-" + in.name},
			Data: map[string]string{"value": "theirs"}}
		if i%8 == 0 {
			cm.Labels, cm.Annotations = own.Labels, own.Annotations
		}
		if err := r.client().Create(ctx, cm); err != nil {
			return err
		}
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind("ConfigMap")
		if err := r.client().Get(ctx, client.ObjectKeyFromObject(cm), u); err != nil {
			return err
		}
		r.foreign = append(r.foreign,
			check.Foreign{Object: check.Object{Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name},
				Content: check.Content(u)})
	}
	return nil
}

// removeAll deletes all installs and waits until they are gone.
func (r *run) removeAll(ctx context.Context) error {
	for _, in := range r.installs {
		in.deleted = true
		x := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: in.name}}
		if err := client.IgnoreNotFound(r.client().Delete(ctx, x)); err != nil {
			return err
		}
	}
	want := r.expected(r.heads)
	return cluster.Await(ctx, "the removal of all installs", convergence, func(ctx context.Context) error {
		left, err := check.Installs(ctx, r.client(), want)
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(left, "\n"))
		}
		return err
	})
}

// buildChecker builds the checker.
func (r *run) buildChecker(ctx context.Context) error {
	r.checker = filepath.Join(r.dir, "checker")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", r.checker, "github.com/ksctl/gitops/e2e/chaos/checker").
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the checker: %w\n%s", err, out)
	}
	return nil
}
