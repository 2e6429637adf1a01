package argocd_test

import (
	"context"
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

// secret returns a commit of a Secret with the suite's secret value, of a type, which is
// immutable.
func secret(kind string) map[string]string {
	return map[string]string{"stacks/app/base/token.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: " +
		"token}\ntype: " + kind + "\nstringData: {token: " + aSecret + "}\n"}
}

// extra returns a commit that changes the last ConfigMap.
func extra(value string) map[string]string {
	return map[string]string{"stacks/app/extra/extra.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " +
		"extra}\ndata: {value: " + value + "}\n"}
}

// value returns the value of the last ConfigMap.
func (w fixture) value(ctx context.Context) (string, error) {
	cm := configMapOf(w.ns, "extra")
	err := get(ctx, cm)
	return cm.Data["value"], err
}

var _ = Describe("With Argo CD", func() {
	It("an install whose account is deleted is Degraded until the account exists again, and no secret "+
		"is leaked", func(ctx SpecContext) {
		w := newFixture(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": installManifest}))
		w.commit(ctx, secret("example.com/one"))
		w.sync(ctx, "")
		becomes(ctx, w.ns, "Healthy")

		By("deleting its account")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: harness.Deployer}}
		Expect(h.ControlPlane.Client().Delete(ctx, account)).To(Succeed())
		w.commit(ctx, extra("two"))
		reports(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*"+w.ns+"/"+harness.Deployer)
		Expect(w.value(ctx)).To(Equal("1"))

		By("a Secret that the API server rejects, after the account is created again")
		w.commit(ctx, secret("example.com/two"))
		Expect(h.ControlPlane.Client().
			Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns,
				Name: harness.Deployer}})).To(Succeed())
		reports(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*token.*immutable")

		By("correcting the Secret")
		w.commit(ctx, secret("example.com/one"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("two"))
		becomes(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("an install of a source in another namespace is Degraded, and installs nothing", func(ctx SpecContext) {
		theirs := newFixture(ctx, content("", map[string]string{"source.yaml": source}))
		theirs.sync(ctx, "")
		becomes(ctx, theirs.ns, "Healthy")
		w := newFixture(ctx,
			map[string]string{"synced/install.yaml": strings.Replace(installManifest, "name: fleet",
				"name: fleet, namespace: "+theirs.ns, 1)})
		w.sync(ctx, "")
		reports(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*"+theirs.ns+"/fleet.*--no-cross-namespace-refs")
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
	}, SpecTimeout(15*time.Minute))

	It("a paused leader is replaced, commits are applied, and it writes nothing when it "+
		"resumes", suite.Safety, func(ctx SpecContext) {
		w := newFixture(ctx, nil)
		labelled := func(manifest, name string) string {
			return strings.Replace(manifest, "metadata: {name: "+name+"}", "metadata: {name: "+name+", labels: {"+
				controllerLabel+": "+w.ns+"}}", 1)
		}
		w.commit(ctx, content("",
			map[string]string{"source.yaml": labelled(source, "fleet"),
				"install.yaml": labelled(installManifest, "app")}))
		replica := func(name string) *harness.Process {
			GinkgoHelper()
			p, err := h.StartProcess(ctx, h.Config,
				append([]string{"--owner-id=" + w.ns, "--watch-label-selector=" + controllerLabel + "=" + w.ns},
					harness.LeaderElectionFlags...)...)
			Expect(err).NotTo(HaveOccurred())
			register(name+" replica", p)
			return p
		}
		first := replica("first")
		w.sync(ctx, "")
		becomes(ctx, w.ns, "Healthy")
		second := replica("second")
		Expect(second.WaitHealthy(ctx)).To(Succeed())
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		uid := base.UID

		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		w.commit(ctx, extra("two"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("two"))
		becomes(ctx, w.ns, "Healthy")
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done(), soon).Should(BeClosed(), "a lost lease ends the process")
		w.commit(ctx, extra("three"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("three"))
		becomes(ctx, w.ns, "Healthy")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.UID).To(Equal(uid), "the object was not recreated")
		Expect(h.ControlPlane.Client().Delete(ctx, application(w.ns))).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, application(w.ns)) }, soon).Should(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
