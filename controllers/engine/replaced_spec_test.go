package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// replace deletes the ConfigMap a and creates another one with the same name and the owner's mark,
// like a restored backup. It returns the new uid.
func replace(ctx context.Context, o *owner, labels map[string]string) types.UID {
	GinkgoHelper()
	ns := o.install.Namespace
	Expect(controlPlane.Client().
		Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}})).To(Succeed())
	mark := live.Mark{Owner: o.Key().String(), ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "a"}.ID()}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", Labels: labels,
		Annotations: map[string]string{live.MarkAnnotation: mark.String()}}}
	Expect(controlPlane.Client().Create(ctx, cm)).To(Succeed())
	return cm.UID
}

func configMapA(ctx context.Context, namespace string) *corev1.ConfigMap {
	GinkgoHelper()
	cm := &corev1.ConfigMap{}
	Expect(controlPlane.Client().Get(ctx, types.NamespacedName{Namespace: namespace, Name: "a"}, cm)).To(Succeed())
	return cm
}

var _ = Describe("An object that was replaced by one with our mark and another uid", suite.Safety, func() {
	It("is not deleted, even if no watch selects it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		o := newOwner(ctx, ns, "o")
		before := startProcess(ns, engine.Options{})
		before.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("one", configMap(ns, "a", "1"))})
		before.stop()
		uid := replace(ctx, o, nil)
		startProcess(ns, engine.Options{}).teardown(ctx, loadOwner(ctx, ns, "o"))
		Expect(configMapA(ctx, ns)).To(And(HaveField("UID", uid), HaveField("DeletionTimestamp", BeNil())))
	})

	It("is not handed over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		o := newOwner(ctx, ns, "o")
		var uid types.UID
		p := startProcess(ns, engine.Options{WriteHook: func(ctx context.Context, kind engine.WriteKind,
			after bool) error {
			if kind == engine.WriteRelease && !after && uid == "" {
				uid = replace(ctx, o, map[string]string{live.OwnerLabel: o.Key().Installation})
			}
			return nil
		}})
		p.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("one", configMap(ns, "a", "1"))})
		successor := o.Key()
		successor.Name = "successor"
		o.policies.HandoverTo = func(string) plan.HandoverDecision { return plan.HandoverDecision{To: &successor} }
		next := engine.Prepare(ctx, []stacks.RenderedComponent{render("one", configMap(ns, "b", "1"))}, o.policies,
			p.target.Discovery)
		Eventually(func() bool {
			_, err := p.engine.Reconcile(ctx, p.pass(o), next)
			Expect(err).NotTo(HaveOccurred())
			_, known := o.inv.Get(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "a"}.ID())
			return known
		}, shortRetry).Should(BeFalse(), "the inventory drops it")
		cm := configMapA(ctx, ns)
		Expect(uid).NotTo(BeEmpty(), "it was replaced")
		Expect(cm.UID).To(Equal(uid))
		mark, err := live.ParseMark(cm.Annotations[live.MarkAnnotation])
		Expect(err).NotTo(HaveOccurred())
		Expect(mark.Owner).To(Equal(o.Key().String()), "the mark is unchanged")
	})
})
