package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs.
const soon = 4 * time.Minute

var (
	h    *harness.Harness
	repo *gitserver.Server
)

func TestSource(t *testing.T) {
	suite.Run(t, "Source")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Nodes: -1, NoScheduler: true}, scanner)
	repo = framework.GitServer()
})

// scanner collects the output of the suite's controllers and searches it for secrets.
var scanner = &leakscan.Scanner{}

// password opens the private repository. wrongPassword does not.
var (
	password      = scanner.AddSecret("hunter2-hunter2")
	wrongPassword = scanner.AddSecret("hunter1-hunter1")
)

func stack(value string) map[string]string {
	return map[string]string{
		"stacks/app/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" +
			harness.OneComponent,
		"stacks/app/main/a.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: "+
			"{value: %q}\n", value),
	}
}

// requestReconcile requests a reconcile of an object.
func requestReconcile(ctx context.Context, o client.Object, token string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token)))).To(Succeed())
}

var _ = Describe("A KsctlSource of a Git repository", func() {
	It("applies commits, by branch and by commit, also after a restart without storage", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "git")
		r, err := repo.NewRepo(ctx, "fleet")
		Expect(err).NotTo(HaveOccurred())
		first, err := r.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())
		c := framework.StartController(h)

		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}},
				Git: &appsv1.GitSource{URL: r.URL(), Ref: &appsv1.GitRef{Branch: "main"}}}}
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		in := harness.NewInstall(ns, "i")
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		value := func() (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, cm)
			return cm.Data["value"], err
		}
		Eventually(ctx, value, soon).Should(Equal("1"), "the first commit of the branch is installed")

		_, err = r.Commit(ctx, stack("2"), "two")
		Expect(err).NotTo(HaveOccurred())
		requestReconcile(ctx, src, "now")
		Eventually(ctx, value, soon).Should(Equal("2"), "the new artifact triggers the install")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)).To(Succeed())

		By("restarting with empty storage")
		Expect(c.Stop()).To(Succeed())
		c.Start()
		patch(ctx, src, fmt.Sprintf(`{"spec":{"git":{"ref":{"branch":null,"commit":%q}}}}`, first))
		Eventually(ctx, value, soon).Should(Equal("1"), "the pinned commit is installed")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)).To(Succeed())
		Expect(src.Status.Artifact.Revision).To(HaveSuffix("sha1:" + first))

		By("a branch that does not exist")
		patch(ctx, src, `{"spec":{"git":{"ref":{"commit":null,"branch":"mian"}}}}`)
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
			for _, c := range src.Status.Conditions {
				if c.Type == "Ready" && c.Status == "False" {
					return c.Reason + ": " + c.Message, err
				}
			}
			return "", err
		}, soon).Should(And(HavePrefix("BranchNotFound"), ContainSubstring("main")),
			"the message has the similar branch")
		Expect(value()).To(Equal("1"), "the installed revision stays")

		for _, o := range []client.Object{in, src} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() error {
				return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
			}, soon).
				Should(MatchError(ContainSubstring("not found")), "%s is deleted", o.GetName())
		}
	})

	It("reads a private repository with a Secret, and reacts to its changes", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "git")
		server := framework.GitServer(gitserver.WithBasicAuth("user", password))
		r, err := server.NewRepo(ctx, "private")
		Expect(err).NotTo(HaveOccurred())
		_, err = r.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())
		framework.StartController(h)

		hour := &metav1.Duration{Duration: time.Hour}
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
				Git: &appsv1.GitSource{URL: r.URL(), SecretRef: &fluxmeta.LocalObjectReference{Name: "login"}}}}
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		reason := func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
			if ready := apimeta.FindStatusCondition(src.Status.Conditions, appsv1.ReadyCondition); ready != nil {
				return ready.Reason, err
			}
			return "", err
		}
		Eventually(ctx, reason, soon).Should(Equal("SecretNotFound"), "the Secret does not exist")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"},
			StringData: map[string]string{"username": "user", "password": wrongPassword}}
		Expect(h.ControlPlane.Client().Create(ctx, secret)).To(Succeed())
		Eventually(ctx, reason, soon).Should(Equal("AuthenticationFailed"), "the new Secret triggers a reconcile")
		secret.StringData = map[string]string{"password": password}
		Expect(h.ControlPlane.Client().Update(ctx, secret)).To(Succeed())
		Eventually(ctx, reason, soon).Should(Equal("Succeeded"), "the changed Secret triggers a reconcile")
		b, err := json.Marshal(src)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(b)).NotTo(ContainSubstring("hunter"))
		Expect(h.ControlPlane.Client().Delete(ctx, src)).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
		}, soon).
			Should(MatchError(ContainSubstring("not found")), "the source is deleted")
	})
})
