package library_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"syscall"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// createTenant creates a namespace as in docs/library.md, with an account and a source.
func createTenant(ctx context.Context, name string) {
	GinkgoHelper()
	c := h.ControlPlane.Client()
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	Expect(harness.CreateDeployer(ctx, h.ControlPlane, name)).To(Succeed())
	a, err := h.ArtifactServer.Publish("gitrepository/"+name+"/fleet", os.DirFS("../../examples/standalone"),
		"main@sha1:1")
	Expect(err).NotTo(HaveOccurred())
	fleet := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "fleet"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/platform/fleet.git"}}
	Expect(c.Create(ctx, fleet)).To(Succeed())
	fleet.Status.Artifact, fleet.Status.ObservedGeneration = &a, fleet.Generation
	fleet.Status.Conditions = []metav1.Condition{{Type: fluxmeta.ReadyCondition, Status: metav1.ConditionTrue,
		Reason:             "Succeeded",
		ObservedGeneration: fleet.Generation, LastTransitionTime: metav1.Now()}}
	Expect(c.Status().Update(ctx, fleet)).To(Succeed())
}

// shippedFlag returns the flag that docs/library.md recommends for a shipped controller that runs
// next to an embedding program.
func shippedFlag() string {
	GinkgoHelper()
	text, err := os.ReadFile("../../docs/library.md")
	Expect(err).NotTo(HaveOccurred())
	flag := regexp.MustCompile("`(--watch-label-selector=[^`]+)`").FindSubmatch(text)
	Expect(flag).To(HaveLen(2))
	return string(flag[1])
}

// awaitPermissions waits until the API server authorizes the program's account according to
// rbac.yaml.
func awaitPermissions(ctx context.Context) {
	GinkgoHelper()
	user := cluster.ServiceAccountUser("library", "library")
	for _, permission := range []authorizationv1.ResourceAttributes{
		{Verb: "impersonate", Resource: "serviceaccounts"},
		{Verb: "create", Resource: "secrets", Namespace: "library"},
		{Verb: "create", Group: "apps.ksctl.com", Resource: "ksctlinstalls"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "library"},
	} {
		Expect(h.ControlPlane.AwaitPermission(ctx, user, permission)).To(Succeed())
	}
}

var _ = Describe("A program that embeds the reconcilers", func() {
	It("installs, corrects and removes a stack with its own RBAC, and another program waits until the install "+
		"is ready", func(ctx SpecContext) {
		c, commands := h.ControlPlane.Client(), docCommands("The reconcilers in a manager of your own")
		Expect(commands).To(HaveLen(3))
		createTenant(ctx, "tenant")
		kubectl := func(command []string) {
			GinkgoHelper()
			Expect(command[0]).To(Equal("kubectl"))
			cmd := exec.CommandContext(ctx, h.ControlPlane.Kubectl(), command[1:]...)
			cmd.Dir, cmd.Env = "../..", append(os.Environ(), "KUBECONFIG="+h.ControlPlane.Kubeconfig())
			out, err := cmd.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		kubectl(commands[0])
		awaitPermissions(ctx)
		account, err := h.ControlPlane.ConfigFor(ctx, "library", "library")
		Expect(err).NotTo(HaveOccurred())
		binary, args := program(commands[1])
		embed, err := h.RunProgram(binary, account, nil, args...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(embed.Kill)
		kubectl(commands[2])

		waits := docCommands("Watch and write with the generated clients")
		Expect(waits).To(HaveLen(1))
		binary, args = program(waits[0])
		watch, err := h.RunProgram(binary, h.ControlPlane.Config(), nil, args...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Kill)
		Eventually(watch.Done(), waitTimeout).Should(BeClosed(), embed.Log)
		Expect(watch.Err()).NotTo(HaveOccurred(), watch.Log())
		Expect(watch.Log()).To(ContainSubstring("tenant/shop Ready=True"))

		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "shop"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(in), in)).To(Succeed())
		Expect(in.Status.StackVersion).To(Equal("1.0.0"))
		Expect(in.Labels).To(HaveKeyWithValue("example.com/made-by", "library"))
		frontend := &k8sappsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "frontend"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(frontend), frontend)).To(Succeed())
		Expect(frontend.Labels).To(HaveKeyWithValue(live.OwnerLabel, "library"))
		Expect(frontend.Status.AvailableReplicas).
			To(BeNumerically(">", 0), "the install was ready only when the Deployment was available")

		By("the shipped controller reconciles the installs that the program did not create")
		createTenant(ctx, "other")
		other := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "shop"}, Spec: in.Spec}
		Expect(c.Create(ctx, other)).To(Succeed())
		framework.StartController(h, "--default-service-account=deployer", shippedFlag())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
			g.Expect(harness.ReadyCondition(other).Status).
				To(Equal(metav1.ConditionTrue), harness.ReadyCondition(other).Message)
		}, waitTimeout).Should(Succeed(), embed.Log)
		for ns, owner := range map[string]string{"tenant": "library", "other": "ksctl"} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "frontend"}, frontend)).To(Succeed())
			Expect(frontend.Labels).To(HaveKeyWithValue(live.OwnerLabel, owner), ns)
		}

		By("an object of the install is changed manually")
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "shop-settings"}}
		Expect(c.Patch(ctx, settings,
			client.RawPatch("application/merge-patch+json", []byte(`{"data":{"PODINFO_LEVEL":"loud"}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(settings), settings)).To(Succeed())
			g.Expect(settings.Data).To(HaveKeyWithValue("PODINFO_LEVEL", "info"))
		}, waitTimeout).Should(Succeed(), embed.Log)

		By("the install is deleted")
		Expect(c.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}},
			client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"labels":{"example.com/stack":null}}}`)))).To(Succeed())
		Expect(c.Delete(ctx, in)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(in), in))
		}, waitTimeout).Should(BeTrue(), embed.Log)
		Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: "tenant", Name: "frontend"}, frontend))).
			To(BeTrue(), "objects are deleted before their install")

		By("the program receives SIGTERM")
		Expect(embed.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(embed.Done(), waitTimeout).Should(BeClosed())
		Expect(embed.Err()).NotTo(HaveOccurred(), embed.Log())
	})
})

var _ = Describe("A program without a cluster", func() {
	It("prints the differences of two installs", func(ctx SpecContext) {
		commands := docCommands("Render without a cluster")
		Expect(commands).To(HaveLen(1))
		binary, args := program(commands[0])
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir, cmd.Env = "../../examples/library", []string{"PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(ContainSubstring("Deployment shop/frontend\n  spec.replicas: 2 → 4\n"))
	})
})
