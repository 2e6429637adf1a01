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

// secret is an object that holds the suite's secret, of a type that can't be changed.
func secret(kind string) map[string]string {
	return map[string]string{"stacks/app/base/token.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\ntype: " + kind + "\nstringData: {token: " + aSecret + "}\n"}
}

// extra is the commit that changes the last ConfigMap.
func extra(value string) map[string]string {
	return map[string]string{"stacks/app/extra/extra.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\ndata: {value: " + value + "}\n"}
}

// value of the last ConfigMap.
func (w world) value(ctx context.Context) (string, error) {
	cm := configMapOf(w.ns, "extra")
	err := get(ctx, cm)
	return cm.Data["value"], err
}

var _ = Describe("Under Argo CD", func() {
	It("an install whose account is deleted is Degraded until it is there again, and nobody tells a secret", func(ctx SpecContext) {
		w := newWorld(ctx, content("", map[string]string{"source.yaml": source, "install.yaml": kinInstall}))
		w.commit(ctx, secret("example.com/one"))
		w.sync(ctx, "")
		is(ctx, w.ns, "Healthy")

		By("its account being deleted")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: harness.Deployer}}
		Expect(h.Plane.Client().Delete(ctx, account)).To(Succeed())
		w.commit(ctx, extra("two"))
		says(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*"+w.ns+"/"+harness.Deployer)
		Expect(w.value(ctx)).To(Equal("1"))

		By("a Secret that the API server refuses, when it is there again")
		w.commit(ctx, secret("example.com/two"))
		Expect(h.Plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: harness.Deployer}})).To(Succeed())
		says(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*token.*immutable")

		By("all being well")
		w.commit(ctx, secret("example.com/one"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("two"))
		is(ctx, w.ns, "Healthy")
	}, SpecTimeout(15*time.Minute))

	It("an install that names a source of another namespace is Degraded, and installs nothing", func(ctx SpecContext) {
		theirs := newWorld(ctx, content("", map[string]string{"source.yaml": source}))
		theirs.sync(ctx, "")
		is(ctx, theirs.ns, "Healthy")
		w := newWorld(ctx, map[string]string{"synced/install.yaml": strings.Replace(kinInstall, "name: fleet", "name: fleet, namespace: "+theirs.ns, 1)})
		w.sync(ctx, "")
		says(ctx, w.ns, "KsctlInstall", "^Synced Degraded: .*"+theirs.ns+"/fleet.*--no-cross-namespace-refs")
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeTrue())
	}, SpecTimeout(15*time.Minute))

	It("a leader that is stopped is replaced, commits go on, and it does no harm when it comes back", suite.Safety, func(ctx SpecContext) {
		w := newWorld(ctx, nil)
		labelled := func(manifest, name string) string {
			return strings.Replace(manifest, "metadata: {name: "+name+"}", "metadata: {name: "+name+", labels: {"+ownController+": "+w.ns+"}}", 1)
		}
		w.commit(ctx, content("", map[string]string{"source.yaml": labelled(source, "fleet"), "install.yaml": labelled(kinInstall, "app")}))
		replica := func(name string) *harness.Process {
			GinkgoHelper()
			p, err := h.StartProcess(ctx, h.Config, append([]string{"--owner-id=" + w.ns, "--watch-label-selector=" + ownController + "=" + w.ns}, harness.Elected...)...)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(p.Kill)
			programs[name+" replica"] = p
			return p
		}
		first := replica("first")
		w.sync(ctx, "")
		is(ctx, w.ns, "Healthy")
		second := replica("second")
		Expect(second.Healthy(ctx)).To(Succeed())
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		uid := base.UID

		Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
		w.commit(ctx, extra("two"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("two"))
		is(ctx, w.ns, "Healthy")
		Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, first.Done(), soon).Should(BeClosed(), "a lost lease ends the process")
		w.commit(ctx, extra("three"))
		Eventually(ctx, w.value, soon).WithArguments(ctx).Should(Equal("three"))
		is(ctx, w.ns, "Healthy")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.UID).To(Equal(uid), "nobody deleted it meanwhile")
		Expect(h.Plane.Client().Delete(ctx, application(w.ns))).To(Succeed())
		Eventually(ctx, func() bool { return gone(ctx, application(w.ns)) }, soon).Should(BeTrue())
	}, SpecTimeout(15*time.Minute))
})
