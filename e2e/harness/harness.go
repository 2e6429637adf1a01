// Package harness runs the controller against a real control plane for suites:
// as the shipped account with the shipped rights, on sources that a suite
// publishes.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/internal/manager"
)

// SystemNamespace and Account are where and as whom the shipped manifests run
// the controller. Deployer is the account that installs of suites act as.
const (
	SystemNamespace = "ksctl-gitops-system"
	Account         = "ksctl-gitops"
	Deployer        = "deployer"
)

// Harness is a control plane with our kinds, a server of sources, and the
// rights of the controller.
type Harness struct {
	Plane  *cluster.Cluster
	Server *artifacts.Server
	// Config has the rights that config/rbac ships, no more.
	Config *rest.Config
	// Shipped makes Build compile as a release is: smaller, and a build of its own.
	Shipped bool
	dir     string

	built    sync.Once
	binary   string
	buildErr error

	worker     sync.Once
	workerPath string
	workerErr  error
	agent      sync.Once
	agentPath  string
	agentErr   error

	shellOnce sync.Once
	shellErr  error
}

// Plain starts a control plane that nothing of ours is on.
func Plain(ctx context.Context, o cluster.Options) (h *Harness, err error) {
	h = &Harness{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Stop())
			h = nil
		}
	}()
	if o.Scheme, err = manager.NewScheme(); err != nil {
		return h, err
	}
	if h.Plane, err = cluster.Start(ctx, o); err != nil {
		return h, err
	}
	if h.Server, err = artifacts.New(); err != nil {
		return h, err
	}
	h.dir, err = os.MkdirTemp("", "ksctl-gitops-e2e-")
	return h, err
}

// Start starts a control plane. The options are completed with our kinds.
func Start(ctx context.Context, o cluster.Options) (h *Harness, err error) {
	o.CRDPaths = append(o.CRDPaths, repository("config/crd/bases"))
	if h, err = Plain(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Stop())
			h = nil
		}
	}()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}}
	if err = h.Plane.Client().Create(ctx, ns); err != nil {
		return h, err
	}
	if err = h.Plane.Apply(ctx, repository("config/rbac")); err != nil {
		return h, err
	}
	if err = AwaitRights(ctx, h.Plane); err != nil {
		return h, err
	}
	h.Config, err = h.Plane.ConfigFor(ctx, SystemNamespace, Account)
	return h, err
}

// AwaitRights waits until the controller has the rights that config/rbac ships.
func AwaitRights(ctx context.Context, plane *cluster.Cluster) error {
	user := cluster.ServiceAccountUser(SystemNamespace, Account)
	return errors.Join(
		plane.AwaitRight(ctx, user, authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts"}),
		plane.AwaitRight(ctx, user, authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: SystemNamespace}))
}

// repository is a path below the root of this repository.
func repository(path string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", path)
}

// Stop ends everything that Start started.
func (h *Harness) Stop() error {
	var errs []error
	if h.Plane != nil {
		errs = append(errs, h.Plane.Stop())
	}
	if h.Server != nil {
		errs = append(errs, h.Server.Close())
	}
	if h.dir != "" {
		errs = append(errs, os.RemoveAll(h.dir))
	}
	return errors.Join(errs...)
}

// Controller is one life of the controller.
type Controller struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	once   sync.Once
}

// StartController runs the controller with flags of the suite's. Two at a time
// need different --owner-id and --watch-label-selector.
func (h *Harness) StartController(flags ...string) (*Controller, error) {
	o := &manager.Options{}
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(fs)
	storage, err := os.MkdirTemp(h.dir, "storage-")
	if err != nil {
		return nil, err
	}
	addr, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	defaults := []string{"--metrics-addr=0", "--health-addr=0", "--storage-addr=" + addr, "--storage-adv-addr=" + addr,
		"--storage-path=" + storage, "--runtime-namespace=" + SystemNamespace}
	if err := fs.Parse(append(defaults, flags...)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Controller{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = manager.Run(ctx, h.Config, o)
	}()
	return c, nil
}

// Stop ends the controller and returns what it ended with.
func (c *Controller) Stop() error {
	c.once.Do(c.cancel)
	<-c.done
	return c.err
}

// Namespace makes a namespace with an account that may do everything.
func (h *Harness) Namespace(ctx context.Context, prefix string) (string, error) {
	ns, err := h.Plane.Namespace(ctx, prefix)
	if err != nil {
		return "", err
	}
	return ns, Deploy(ctx, h.Plane, ns)
}

// Deploy makes an account in a namespace, which may do everything.
func Deploy(ctx context.Context, plane *cluster.Cluster, ns string) error {
	err := plane.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-%[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
`, ns, Deployer))
	if err != nil {
		return err
	}
	return plane.AwaitRight(ctx, cluster.ServiceAccountUser(ns, Deployer), authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

// Publish makes a KsctlSource that offers a tree, or moves it on to another one.
// It is suspended, so that nobody but the suite says what its artifact is.
func (h *Harness) Publish(ctx context.Context, ns, name, revision string, tree fs.FS) error {
	a, err := h.Server.Publish("ksctlsource/"+ns+"/"+name, tree, revision)
	if err != nil {
		return err
	}
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	err = h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
	if apierrors.IsNotFound(err) {
		src.Spec = appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true}, Git: &appsv1.GitSource{URL: "http://git.example.com/x"}}
		err = h.Plane.Client().Create(ctx, src)
	}
	if err != nil {
		return err
	}
	src.Status.Artifact = &a
	apimeta.SetStatusCondition(&src.Status.Conditions, metav1.Condition{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
		Reason: "Succeeded", ObservedGeneration: src.Generation})
	return h.Plane.Client().Status().Update(ctx, src)
}

// Install is a KsctlInstall of stack "app" from source "src".
func Install(ns, name string) *appsv1.KsctlInstall {
	hour := &metav1.Duration{Duration: time.Hour}
	return &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlInstallSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app", ServiceAccountName: Deployer}}
}

// Tree is a source with one stack "app" of plain manifests: the rest of its
// stack.yaml, and files beside it.
func Tree(stack string, files map[string]string) fs.FS {
	all := map[string]string{"stacks/app/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" + stack}
	for name, content := range files {
		all["stacks/app/"+name] = content
	}
	return artifacts.Files(all)
}

// OneComponent is the stack of a Tree whose component "main" is the folder main/.
const OneComponent = "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifests: [main/]\n"

// Ready is the Ready condition of an install; zero when it has none.
func Ready(in *appsv1.KsctlInstall) metav1.Condition {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition); c != nil {
		return *c
	}
	return metav1.Condition{}
}
