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

// sends makes a ConfigMap as some manager, with the label and a mark of an owner.
func sends(ctx context.Context, o *owner, manager, name, markOf string) {
	GinkgoHelper()
	ns := o.install.Namespace
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
		Labels:      map[string]string{live.OwnerLabel: o.Key().Installation},
		Annotations: map[string]string{live.MarkAnnotation: live.Mark{Owner: o.Key().String(), ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: markOf}.ID()}.String()}}}
	//nolint:staticcheck // typed apply configurations have no way for what is not typed
	Expect(plane.Client().Patch(ctx, cm, client.Apply, client.FieldOwner(manager))).To(Succeed())
}

var _ = Describe("An object that no inventory lists", suite.Safety, func() {
	It("is taken up and removed when we made it for this owner, and left when it only looks so", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		o := newOwner(ctx, ns, "o")
		o.policies.Since = o.install.CreationTimestamp.Time
		p := start(ns, engine.Options{})
		want := []stacks.RenderedComponent{render("one", configMap(ns, "a", "1"))}
		p.settle(ctx, o, want)

		sends(ctx, o, live.FieldManager, "late", "late")
		sends(ctx, o, live.FieldManager, "copy", "a")
		sends(ctx, o, "kubectl", "restored", "restored")
		names := func() []string {
			p.settle(ctx, o, want)
			var out []string
			for _, cm := range ours(ctx, ns) {
				out = append(out, cm.Name)
			}
			return out
		}
		Eventually(names, soon).Should(ConsistOf("a", "copy", "restored"))
		Expect(o.inv.Len()).To(Equal(1))

		By("a new life that finds one at its start, and an owner that goes")
		p.stop()
		sends(ctx, o, live.FieldManager, "late", "late")
		next := start(ns, engine.Options{})
		o = load(ctx, ns, "o")
		o.policies.Since = o.install.CreationTimestamp.Time
		p = next
		Eventually(names, soon).Should(ConsistOf("a", "copy", "restored"))
		sends(ctx, o, live.FieldManager, "later", "later")
		Eventually(func() bool {
			_, known := next.target.Index.Get(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "later"})
			return known
		}, soon).Should(BeTrue())
		next.teardown(ctx, o)
		var left []string
		for _, cm := range ours(ctx, ns) {
			left = append(left, cm.Name)
		}
		Expect(left).To(ConsistOf("copy", "restored"))
	})
})
