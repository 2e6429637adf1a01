package argocd_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/argo"
)

// An Argo CD beside the other one, of another namespace, which tracks by label: by that
// which docs/argocd.md recommends, or by the one that it has by default.
var _ = DescribeTable("An Argo CD that tracks by label", func(ctx SpecContext, namespace string, settings map[string]string, instance func(world) string) {
	DeferCleanup(func(was string) { argoNamespace = was }, argoNamespace)
	argoNamespace = namespace
	settings["application.resourceTrackingMethod"] = "label"
	Expect(argo.Prepare(ctx, h.Plane, namespace, settings)).To(Succeed())
	kubectl(ctx, "apply", "--server-side", "--field-manager", "ksctl-gitops", "--namespace", namespace, "-k", "../../config/argocd")
	startController(ctx, namespace)

	w := newWorld(ctx, nil)
	w.commit(ctx, content(instance(w), map[string]string{"source.yaml": source, "install.yaml": kinInstall, "theirs.yaml": configMap("extra", "x")}))
	w.sync(ctx, "")
	in := install(w.ns, "app")
	Eventually(ctx, func() (string, error) {
		err := get(ctx, in)
		return harness.Ready(in).Reason + ": " + harness.Ready(in).Message, err
	}, soon).Should(And(HavePrefix("OwnedByAnother: "), ContainSubstring("Argo CD application "+w.ns)))
	says(ctx, w.ns, "ConfigMap", "^Synced ")
	Eventually(ctx, func() ([]string, error) {
		var names []string
		s, err := statusOf(ctx, w.ns)
		for _, r := range s.Resources {
			names = append(names, r.Name)
		}
		return names, err
	}, soon).Should(ConsistOf("app", "extra", "fleet"), "what the install made is not its own, whatever label it has")
	Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeFalse())
},
	Entry("of its own", SpecTimeout(15*time.Minute), "argocd-own", map[string]string{"application.instanceLabelKey": "argocd.argoproj.io/instance"},
		func(w world) string { return w.ns }),
	Entry("of charts, too", SpecTimeout(15*time.Minute), "argocd-shared", map[string]string{},
		func(world) string { return "" }))
