package removal_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("A Job that runs while its install is removed", func() {
	It("is gone when its Pod is, and only then what it depends on is removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree(`spec:
  version: 1.0.0
  components:
  - {name: settings, manifests: [settings/]}
  - {name: work, manifests: [work/], dependsOn: [settings]}
`, map[string]string{"settings/a.yaml": configMap("settings", "1"),
			"work/j.yaml": jobManifest("work", cluster.FateNeverEnds, "")}))).To(Succeed())
		a := install(ctx, ns, "a")
		var pods []corev1.Pod
		Eventually(ctx, func() (_ []corev1.Pod, err error) {
			pods, err = endlessPods(ctx, ns)()
			return pods, err
		}, soon).Should(HaveLen(1))
		mergePatch(ctx, &pods[0], `{"metadata": {"finalizers": ["example.com/slow"]}}`)

		Expect(h.ControlPlane.Client().Delete(ctx, a)).To(Succeed())
		job := jobObject(ns, "work")
		Eventually(ctx, func() (bool, error) {
			err := get(ctx, job)
			return job.DeletionTimestamp != nil, err
		}, soon).Should(BeTrue(), "the Job waits for its Pod")
		settings := &corev1.ConfigMap{ObjectMeta: objectMeta(ns, "settings")}
		Consistently(ctx, func(g Gomega) {
			g.Expect(get(ctx, job)).To(Succeed())
			g.Expect(get(ctx, settings)).To(Succeed())
		}, "2s").Should(Succeed())

		mergePatch(ctx, &pods[0], `{"metadata": {"finalizers": null}}`)
		Eventually(ctx, func() bool { return apierrors.IsNotFound(get(ctx, a)) }, soon).Should(BeTrue())
		Expect(apierrors.IsNotFound(get(ctx, settings))).To(BeTrue())
	}, SpecTimeout(10*time.Minute))
})
