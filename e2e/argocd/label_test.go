package argocd_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/argo"
)

// A second Argo CD, in another namespace, tracks by label: by the label that docs/argocd.md
// recommends, or by its default label.
var _ = DescribeTable("Argo CD with tracking "+
	"by label", func(ctx SpecContext, namespace string, settings map[string]string, instance func(fixture) string) {
	DeferCleanup(func(was string) { argoNamespace = was }, argoNamespace)
	argoNamespace = namespace
	settings["application.resourceTrackingMethod"] = "label"
	Expect(argo.PrepareNamespace(ctx, h.ControlPlane, namespace, settings)).To(Succeed())
	kubectl(ctx, "apply", "--server-side", "--field-manager", "ksctl-gitops", "--namespace", namespace, "-k",
		"../../config/argocd")
	startApplicationController(ctx, namespace)

	w := newFixture(ctx, nil)
	w.commit(ctx, content(instance(w),
		map[string]string{"source.yaml": source, "install.yaml": installManifest,
			"theirs.yaml": configMap("extra", "x")}))
	w.sync(ctx, "")
	in := install(w.ns, "app")
	Eventually(ctx, func() (string, error) {
		err := get(ctx, in)
		return harness.ReadyCondition(in).Reason + ": " + harness.ReadyCondition(in).Message, err
	}, soon).Should(And(HavePrefix("OwnedByAnother: "), ContainSubstring("Argo CD application "+w.ns)))
	reports(ctx, w.ns, "ConfigMap", "^Synced ")
	Eventually(ctx, func() ([]string, error) {
		var names []string
		s, err := statusOf(ctx, w.ns)
		for _, r := range s.Resources {
			names = append(names, r.Name)
		}
		return names, err
	}, soon).Should(ConsistOf("app", "extra", "fleet"),
		"objects of the install are not resources of the Application, whatever label they have")
	Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeFalse())
},
	Entry("with a label of its own", SpecTimeout(15*time.Minute), "argocd-own",
		map[string]string{"application.instanceLabelKey": "argocd.argoproj.io/instance"},
		func(w fixture) string { return w.ns }),
	Entry("with the label that charts use", SpecTimeout(15*time.Minute), "argocd-shared", map[string]string{},
		func(fixture) string { return "" }))
