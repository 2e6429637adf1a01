package install_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/manager"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

var (
	h      *harness.Harness
	plane  *cluster.Cluster
	server *artifacts.Server
)

func TestInstall(t *testing.T) {
	suite.Run(t, "Install")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Audit: true}, scanner)
	plane, server = h.ControlPlane, h.ArtifactServer
	h.Config.Wrap(applyTrace.wrap)
	startController(sharedController)
})

// scanner collects the output of the suite's controllers and searches it for secrets.
var scanner = &leakscan.Scanner{}

// startController runs the controller in this process with the shipped permissions. The
// returned function stops it.
func startController(options ...func(*manager.Options)) (stop func()) {
	GinkgoHelper()
	c, err := h.StartConfiguredController(func(o *manager.Options) {
		for _, f := range options {
			f(o)
		}
	})
	Expect(err).NotTo(HaveOccurred())
	stop = func() { Expect(c.Stop()).To(Succeed()) }
	DeferCleanup(stop)
	return stop
}

// namespaceFor creates a namespace with a ServiceAccount that is cluster-admin.
func namespaceFor(ctx context.Context) string {
	GinkgoHelper()
	return framework.Namespace(ctx, h, "install")
}

// publish creates a KsctlSource with a tree as its artifact, or replaces its artifact.
func publish(ctx context.Context, ns, name, revision string, tree fs.FS) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, name, revision, tree)).To(Succeed())
}

// newInstall creates a KsctlInstall of stack "app" from source "src".
func newInstall(ctx context.Context, ns, name string, changes ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlInstallSpec{SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks",
			Stack:              "app",
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

func ready(in *appsv1.KsctlInstall) metav1.Condition { return harness.ReadyCondition(in) }

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
