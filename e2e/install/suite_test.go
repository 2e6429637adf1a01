package install_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/manager"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

// systemNamespace and account are the namespace and the ServiceAccount of the controller in
// the shipped manifests.

const (
	systemNamespace = "ksctl-gitops-system"
	account         = "ksctl-gitops"
)

var (
	plane  *cluster.Cluster
	server *artifacts.Server
	// controllerConfig has exactly the permissions that config/rbac ships.
	controllerConfig *rest.Config
)

func TestInstall(t *testing.T) {
	suite.Run(t, "Install")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, scanner.Writer(leakscan.Log)))))
	scheme, err := manager.NewScheme()
	Expect(err).NotTo(HaveOccurred())
	plane, err = cluster.Start(ctx, cluster.Options{Audit: true, CRDPaths: []string{"../../config/crd/bases"}, Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	server, err = artifacts.New()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	Expect(plane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})).To(Succeed())
	Expect(plane.Apply(ctx, "../../config/rbac")).To(Succeed())
	Expect(harness.AwaitPermissions(ctx, plane)).To(Succeed())
	controllerConfig, err = plane.ConfigFor(ctx, systemNamespace, account)
	Expect(err).NotTo(HaveOccurred())
	controllerConfig.Wrap(applyTrace.wrap)
	watching, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	Expect(scanner.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(expectNoLeaks)
	startController(sharedController)
})

// scanner collects the output of the suite's controllers and searches it for secrets.
var scanner = &leakscan.Scanner{}

// expectNoLeaks fails if the output of a controller contains a secret of a spec.
func expectNoLeaks(ctx SpecContext) {
	Expect(scanner.RecordProcessMetrics()).To(Succeed())
	Expect(scanner.Check(ctx)).To(Succeed())
}

// startController runs the controller in this process with the shipped permissions. The
// returned function stops it.
func startController(options ...func(*manager.Options)) (stop func()) {
	GinkgoHelper()
	o := &manager.Options{}
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(flags)
	dir := GinkgoT().TempDir()
	Expect(flags.Parse([]string{"--metrics-addr=0", "--health-addr=0", "--storage-addr=127.0.0.1:0", "--storage-path=" + dir,
		"--runtime-namespace=" + systemNamespace})).To(Succeed())
	for _, f := range options {
		f(o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer GinkgoRecover()
		Expect(manager.Run(ctx, controllerConfig, o)).To(Succeed())
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	DeferCleanup(stop)
	return stop
}

// namespaceFor creates a namespace with a ServiceAccount that is cluster-admin.
func namespaceFor(ctx context.Context) string {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "install")
	Expect(err).NotTo(HaveOccurred())
	Expect(harness.CreateDeployer(ctx, plane, ns)).To(Succeed())
	return ns
}

// publish creates a KsctlSource with a tree as its artifact, or replaces its artifact.
func publish(ctx context.Context, ns, name, revision string, tree fs.FS) {
	GinkgoHelper()
	a, err := server.Publish("ksctlsource/"+ns+"/"+name, tree, revision)
	Expect(err).NotTo(HaveOccurred())
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	err = plane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
	if err != nil {
		// The source is suspended so that only the test writes its artifact.
		src.Spec = appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true}, Git: &appsv1.GitSource{URL: "http://git.example.com/x"}}
		Expect(plane.Client().Create(ctx, src)).To(Succeed())
	}
	src.Status.Artifact = &a
	apimeta.SetStatusCondition(&src.Status.Conditions, metav1.Condition{Type: "Ready", Status: "True", Reason: "Succeeded", ObservedGeneration: src.Generation})
	Expect(plane.Client().Status().Update(ctx, src)).To(Succeed())
}

// newInstall creates a KsctlInstall of stack "app" from source "src".
func newInstall(ctx context.Context, ns, name string, changes ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlInstallSpec{SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
			ServiceAccountName: "deployer"}}
	for _, f := range changes {
		f(in)
	}
	Expect(plane.Client().Create(ctx, in)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		// Suspend the install, so that the controller is idle when the next spec starts.
		rest := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
		Expect(client.IgnoreNotFound(plane.Client().Patch(ctx, in.DeepCopy(), rest))).To(Succeed())
	})
	return in
}

func get(ctx context.Context, o client.Object) error {
	return plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

func ready(in *appsv1.KsctlInstall) metav1.Condition {
	if c := apimeta.FindStatusCondition(in.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// becomes waits until the Ready condition of an install has a status and a reason for the
// current generation. A failure shows the last condition.
func becomes(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := get(ctx, in); err != nil {
			return err
		}
		c := ready(in)
		if c.Status == status && (reason == "" || c.Reason == reason) && in.Status.ObservedGeneration == in.Generation {
			return nil
		}
		return fmt.Errorf("Ready is %s/%s: %s (components %+v)", c.Status, c.Reason, c.Message, in.Status.Components)
	}, soon, 20*time.Millisecond).Should(Succeed(), "the install becomes Ready=%s %s", status, reason)
}

// atRevision waits until an install is ready at a revision.
func atRevision(ctx context.Context, in *appsv1.KsctlInstall, revision string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := get(ctx, in); err != nil {
			return err
		}
		if c := ready(in); c.Status != "True" || in.Status.LastAppliedRevision != revision {
			return fmt.Errorf("at %q, Ready is %s/%s: %s", in.Status.LastAppliedRevision, c.Status, c.Reason, c.Message)
		}
		return nil
	}, soon, 20*time.Millisecond).Should(Succeed(), "the install is ready at %s", revision)
}

// deleteAndWait deletes an object and waits until it is gone.
func deleteAndWait(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, o))).To(Succeed())
	Eventually(ctx, func() error {
		if err := get(ctx, o); err != nil {
			return client.IgnoreNotFound(err)
		}
		if in, ok := o.(*appsv1.KsctlInstall); ok {
			return fmt.Errorf("still there: %s", ready(in).Message)
		}
		return fmt.Errorf("still there")
	}, soon, 50*time.Millisecond).Should(Succeed(), "%s is gone", o.GetName())
}
