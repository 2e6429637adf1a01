// Package harness runs the controller against a real control plane for test suites. The controller
// uses the ServiceAccount and RBAC of config/rbac and reads sources that the suite publishes.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/tools"
	"github.com/ksctl/gitops/internal/manager"
)

// SystemNamespace and ServiceAccount are the namespace and the account of the controller in the
// shipped manifests. Deployer is the account that installs of suites impersonate.
const (
	SystemNamespace = "ksctl-gitops-system"
	ServiceAccount  = "ksctl-gitops"
	Deployer        = "deployer"
)

// Harness is a control plane with our CRDs, an artifact server for sources, and the controller's
// client configuration.
type Harness struct {
	ControlPlane   *cluster.Cluster
	ArtifactServer *artifacts.Server
	// Config has exactly the permissions of config/rbac.
	Config *rest.Config
	// ReleaseBuild makes Build compile with the flags of a release, in a separate build.
	ReleaseBuild bool

	dir          string
	buildMutex   sync.Mutex
	built        map[string]string // paths of built programs, by name
	prepareShell func() error
}

// StartControlPlane starts a control plane without our CRDs and RBAC.
func StartControlPlane(ctx context.Context, o cluster.Options) (h *Harness, err error) {
	h = &Harness{built: map[string]string{}}
	h.prepareShell = sync.OnceValue(h.linkShellPrograms)
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Stop())
			h = nil
		}
	}()
	if o.Scheme, err = manager.NewScheme(); err != nil {
		return h, err
	}
	if h.ControlPlane, err = cluster.Start(ctx, o); err != nil {
		return h, err
	}
	if h.ArtifactServer, err = artifacts.New(); err != nil {
		return h, err
	}
	h.dir, err = os.MkdirTemp("", "ksctl-gitops-e2e-")
	return h, err
}

// Start starts a control plane with our CRDs, the system namespace and the controller's RBAC. It
// adds our CRDs to the options.
func Start(ctx context.Context, o cluster.Options) (*Harness, error) {
	o.CRDPaths = append(o.CRDPaths, RepoPath("config/crd/bases"))
	h, err := StartControlPlane(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := h.prepareController(ctx); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// prepareController creates the system namespace and the account of the controller.
func (h *Harness) prepareController(ctx context.Context) (err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}}
	if err = h.ControlPlane.Client().Create(ctx, ns); err != nil {
		return err
	}
	if err = h.ControlPlane.Apply(ctx, RepoPath("config/rbac")); err != nil {
		return err
	}
	if err = awaitPermissions(ctx, h.ControlPlane); err != nil {
		return err
	}
	h.Config, err = h.ControlPlane.ConfigFor(ctx, SystemNamespace, ServiceAccount)
	return err
}

// awaitPermissions waits until the API server authorizes the controller according to config/rbac.
func awaitPermissions(ctx context.Context, controlPlane *cluster.Cluster) error {
	user := cluster.ServiceAccountUser(SystemNamespace, ServiceAccount)
	return errors.Join(
		controlPlane.AwaitPermission(ctx, user,
			authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts"}),
		controlPlane.AwaitPermission(ctx, user,
			authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: SystemNamespace}))
}

// RepoPath returns the absolute path of a file in this repository.
func RepoPath(path string) string {
	checkout, err := tools.Checkout()
	if err != nil {
		panic(err) // no test runs outside of the checkout
	}
	return filepath.Join(checkout, path)
}

// Stop stops the control plane and the artifact server, and deletes the harness' folder.
func (h *Harness) Stop() error {
	var errs []error
	if h.ControlPlane != nil {
		errs = append(errs, h.ControlPlane.Stop())
	}
	if h.ArtifactServer != nil {
		errs = append(errs, h.ArtifactServer.Close())
	}
	if h.dir != "" {
		errs = append(errs, os.RemoveAll(h.dir))
	}
	return errors.Join(errs...)
}

// Controller is a run of the controller in this process.
type Controller struct {
	// Stop stops the controller and returns its error. Further calls return the same error.
	Stop func() error
}

// StartController starts the controller in this process, with additional flags. Two concurrent
// controllers need different --owner-id and --watch-label-selector.
func (h *Harness) StartController(flags ...string) (*Controller, error) {
	return h.StartConfiguredController(func(*manager.Options) {}, flags...)
}

// StartConfiguredController is like StartController, for options that have no flag.
func (h *Harness) StartConfiguredController(configure func(*manager.Options), flags ...string) (*Controller, error) {
	o := &manager.Options{}
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(fs)
	storage, err := h.storageFlags()
	if err != nil {
		return nil, err
	}
	if err := fs.Parse(slices.Concat([]string{"--metrics-addr=0", "--health-addr=0"}, storage, flags)); err != nil {
		return nil, err
	}
	configure(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, h.Config, o) }()
	return &Controller{Stop: sync.OnceValue(func() error {
		cancel()
		return <-done
	})}, nil
}

// storageFlags returns the flags of a controller about its namespace and a new artifact storage.
func (h *Harness) storageFlags() ([]string, error) {
	storage, err := os.MkdirTemp(h.dir, "storage-")
	if err != nil {
		return nil, err
	}
	addr, err := cluster.FreeAddress()
	return []string{"--runtime-namespace=" + SystemNamespace, "--storage-addr=" + addr, "--storage-path=" + storage},
		err
}

// Namespace creates a namespace with the account [Deployer], which has all permissions.
func (h *Harness) Namespace(ctx context.Context, prefix string) (string, error) {
	ns, err := h.ControlPlane.Namespace(ctx, prefix)
	if err != nil {
		return "", err
	}
	return ns, CreateDeployer(ctx, h.ControlPlane, ns)
}

// CreateDeployer creates the account [Deployer] in a namespace, grants it all permissions and waits
// until they are effective.
func CreateDeployer(ctx context.Context, controlPlane *cluster.Cluster, ns string) error {
	err := controlPlane.ApplyYAML(ctx, fmt.Appendf(nil, `
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
	return controlPlane.AwaitPermission(ctx, cluster.ServiceAccountUser(ns, Deployer),
		authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

// PublishSource creates a KsctlSource whose artifact is a tree, or updates its artifact. The source
// is suspended, so that only the suite sets its artifact.
func (h *Harness) PublishSource(ctx context.Context, ns, name, revision string, tree fs.FS) error {
	a, err := h.ArtifactServer.Publish("ksctlsource/"+ns+"/"+name, tree, revision)
	if err != nil {
		return err
	}
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	err = h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
	if apierrors.IsNotFound(err) {
		src.Spec = appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true},
			Git: &appsv1.GitSource{URL: "http://git.example.com/x"}}
		err = h.ControlPlane.Client().Create(ctx, src)
	}
	if err != nil {
		return err
	}
	src.Status.Artifact = &a
	apimeta.SetStatusCondition(&src.Status.Conditions, metav1.Condition{Type: appsv1.ReadyCondition,
		Status: metav1.ConditionTrue,
		Reason: "Succeeded", ObservedGeneration: src.Generation})
	return h.ControlPlane.Client().Status().Update(ctx, src)
}

// NewInstall returns a KsctlInstall of stack "app" from the KsctlSource "src", without creating it.
func NewInstall(ns, name string) *appsv1.KsctlInstall {
	hour := &metav1.Duration{Duration: time.Hour}
	return &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlInstallSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
			ServiceAccountName: Deployer}}
}

// SourceTree returns the file tree of a source with one stack "app". stack is appended to the head
// of its stack.yaml; files are paths relative to the stack's folder.
func SourceTree(stack string, files map[string]string) fs.FS {
	all := map[string]string{"stacks/app/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: " +
		"{name: app}\n" + stack}
	for name, content := range files {
		all["stacks/app/"+name] = content
	}
	return artifacts.Files(all)
}

// OneComponent is the spec of a stack for SourceTree with one component "main" of the manifests in
// main/.
const OneComponent = "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifests: [main/]\n"

// ReadyCondition returns the Ready condition of an install, or the zero value if it has none.
func ReadyCondition(in *appsv1.KsctlInstall) metav1.Condition {
	return ptr.Deref(apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition), metav1.Condition{})
}
