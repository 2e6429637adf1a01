package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// applyAs applies a ConfigMap with a field manager, and with the label and a mark of an owner.
func applyAs(ctx context.Context, o *owner, manager, name, markOf string) {
	GinkgoHelper()
	ns := o.install.Namespace
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
		Labels:      map[string]string{live.OwnerLabel: o.Key().Installation},
		Annotations: map[string]string{live.MarkAnnotation: live.Mark{Owner: o.Key().String(), ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: markOf}.ID()}.String()}}}
	//nolint:staticcheck // there is no typed apply configuration for a client.Object
	Expect(controlPlane.Client().Patch(ctx, cm, client.Apply, client.FieldOwner(manager))).To(Succeed())
}

var _ = Describe("An object that no inventory lists", suite.Safety, func() {
	It("is adopted and removed if the engine created it for this owner, and left if only its mark matches", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		o := newOwner(ctx, ns, "o")
		o.policies.AdoptStraysSince = o.install.CreationTimestamp.Time
		p := startProcess(ns, engine.Options{})
		want := []stacks.RenderedComponent{render("one", configMap(ns, "a", "1"))}
		p.reconcileUntilReady(ctx, o, want)

		applyAs(ctx, o, live.FieldManager, "late", "late")
		applyAs(ctx, o, live.FieldManager, "copy", "a")
		applyAs(ctx, o, "kubectl", "restored", "restored")
		names := func() []string {
			p.reconcileUntilReady(ctx, o, want)
			var out []string
			for _, cm := range labeledConfigMaps(ctx, ns) {
				out = append(out, cm.Name)
			}
			return out
		}
		Eventually(names, shortRetry).Should(ConsistOf("a", "copy", "restored"))
		Expect(o.inv.Len()).To(Equal(1))

		By("a stray that exists when the controller starts, and a teardown")
		p.stop()
		applyAs(ctx, o, live.FieldManager, "late", "late")
		next := startProcess(ns, engine.Options{})
		o = loadOwner(ctx, ns, "o")
		o.policies.AdoptStraysSince = o.install.CreationTimestamp.Time
		p = next
		Eventually(names, shortRetry).Should(ConsistOf("a", "copy", "restored"))
		applyAs(ctx, o, live.FieldManager, "later", "later")
		Eventually(func() bool {
			_, known := next.target.Index.Get(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "later"})
			return known
		}, shortRetry).Should(BeTrue())
		next.teardown(ctx, o)
		var left []string
		for _, cm := range labeledConfigMaps(ctx, ns) {
			left = append(left, cm.Name)
		}
		Expect(left).To(ConsistOf("copy", "restored"))
	})
})
