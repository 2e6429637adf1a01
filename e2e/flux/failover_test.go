package flux_test

import (
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// secret returns a Secret with the suite's secret value, of a type, which is immutable.
func secret(kind string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\ntype: " + kind + "\nstringData: {token: " + aSecret +
		"}\n"
}

var _ = Describe("With Flux", func() {
	It("an install whose account is deleted changes nothing until the account exists again, and no secret "+
		"is leaked", func(ctx SpecContext) {
		team := strings.ReplaceAll(installManifest, "serviceAccountName: "+harness.Deployer, "serviceAccountName: team")
		files := content(map[string]string{"clusters/prod/install.yaml": team,
			"stacks/app/base/token.yaml": secret("example.com/one")})
		w := newTenant(ctx, "", files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", "serviceAccountName: team\n"),
			w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))

		By("deleting its account")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "team"}}
		Expect(h.ControlPlane.Client().Delete(ctx, account)).To(Succeed())
		files["stacks/app/extra/extra.yaml"] = configMap("extra", "2")
		w.commit(ctx, files)
		notReady(ctx, in, "ServiceAccountNotFound", w.ns+"/team")
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("1"))

		By("a Secret that the API server rejects, after the account is created again")
		files["stacks/app/base/token.yaml"] = secret("example.com/two")
		w.commit(ctx, files)
		Expect(h.ControlPlane.Client().
			Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "team"}})).
			To(Succeed())
		notReady(ctx, in, "ReconciliationFailed", "token", "immutable")

		By("correcting the Secret")
		files["stacks/app/base/token.yaml"] = secret("example.com/one")
		revision := w.commit(ctx, files)
		readyAt(ctx, in, revision)
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("2"))
		readyAt(ctx, k, revision)
	}, SpecTimeout(15*time.Minute))

	It("a paused leader is replaced, commits are applied, and it writes nothing when it "+
		"resumes", suite.Safety, func(ctx SpecContext) {
		labelled := strings.Replace(installManifest, "name: app}", "name: app, labels: {"+controllerLabel+": NS}}", 1)
		w := newFixture(ctx, content(nil))
		files := content(map[string]string{"clusters/prod/install.yaml": strings.ReplaceAll(labelled, "NS", w.ns)})
		replica := func(name string) *harness.Process {
			GinkgoHelper()
			p, err := h.StartProcess(ctx, h.Config,
				slices.Concat([]string{"--owner-id=" + w.ns, "--watch-label-selector=" + controllerLabel + "=" + w.ns},
					harness.LeaderElectionFlags, lockdown)...)
			Expect(err).NotTo(HaveOccurred())
			register(name+" replica", p)
			return p
		}
		first := replica("first")
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.commit(ctx, files))
		second := replica("second")
		Expect(second.WaitHealthy(ctx)).To(Succeed())
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		uid := base.UID

		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		files["stacks/app/base/base.yaml"] = configMap("base", "2")
		revision := w.commit(ctx, files)
		readyAt(ctx, in, revision)
		readyAt(ctx, k, revision)
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done(), soon).Should(BeClosed(), "a lost lease ends the process")
		files["stacks/app/base/base.yaml"] = configMap("base", "3")
		readyAt(ctx, in, w.commit(ctx, files))
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.Data).To(HaveKeyWithValue("value", "3"))
		Expect(base.UID).To(Equal(uid), "the object was not recreated")
		delete(files, "clusters/prod/install.yaml")
		w.commit(ctx, files)
		Eventually(ctx, absent, soon).WithArguments(ctx, in).Should(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
