package argocd_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/convert"
)

var _ = Describe("Converting an Application", func() {
	It("moves its objects, which keep their uids", func(ctx SpecContext) {
		files := map[string]string{"synced/web.yaml": deployment("web", ""),
			"synced/settings.yaml": strings.Replace(settingsMap, "{name: settings}",
				`{name: settings, annotations: {argocd.argoproj.io/sync-wave: "-1"}}`, 1)}
		w := newFixture(ctx, files)
		w.sync(ctx, "")
		becomes(ctx, w.ns, "Healthy")
		was := running(ctx, w.ns)
		uids := func() (out []types.UID) {
			for _, o := range []client.Object{webOf(w.ns), configMapOf(w.ns, "settings")} {
				Expect(get(ctx, o)).To(Succeed())
				out = append(out, o.GetUID())
			}
			return out
		}
		before := uids()

		By("converting what is in the cluster")
		app := application(w.ns)
		Expect(get(ctx, app)).To(Succeed())
		converted, err := harness.Convert(ctx, files, nil, convert.Object{Value: app.Object})
		Expect(err).NotTo(HaveOccurred())
		stack, manifests := map[string]string{}, []string{}
		for _, name := range slices.Sorted(maps.Keys(converted)) {
			if content := converted[name]; strings.HasPrefix(name, "stacks/") {
				stack[name] = content
			} else {
				manifests = append(manifests, strings.Replace(content, "spec:\n  sourceRef",
					"spec:\n  serviceAccountName: "+harness.Deployer+"\n  sourceRef", 1))
			}
		}
		Expect(stack).To(HaveLen(1))
		Expect(manifests).To(HaveLen(2))

		By("stopping the Application, and adding the stack and the install")
		runDocBlock(ctx, 0, w.ns, nil)
		w.commit(ctx, stack)
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(strings.Join(manifests, "---\n")))).To(Succeed())
		in := install(w.ns, w.ns)
		Eventually(ctx, func() (string, error) {
			err := get(ctx, in)
			return harness.ReadyCondition(in).Reason + ": " + harness.ReadyCondition(in).Message, err
		}, soon).Should(HavePrefix("ReconciliationSucceeded: "))
		Expect(claimedByArgo(ctx, w.ns)).To(BeEmpty())

		By("removing the Application")
		refresh(ctx, w.ns)
		Eventually(ctx, func() (string, error) {
			s, err := statusOf(ctx, w.ns)
			return s.Sync.Status, err
		}, soon).Should(Equal("OutOfSync"), "the Application has lost its objects")
		runDocBlock(ctx, 3, w.ns, nil)
		Eventually(ctx, func() bool { return absent(ctx, application(w.ns)) }, soon).Should(BeTrue())
		Expect(running(ctx, w.ns)).To(Equal(was))
		Expect(uids()).To(Equal(before))
	}, SpecTimeout(10*time.Minute))
})
