package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// applyAs applies a ConfigMap with a field manager, and with the label and a mark of an owner.
func applyAs(ctx context.Context, o *owner, manager, name, markOf string) {
	GinkgoHelper()
	ns := o.install.Namespace
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
		Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
		Labels: map[string]string{live.OwnerLabel: o.Key().Installation},
		Annotations: map[string]string{live.MarkAnnotation: live.Mark{Owner: o.Key().String(),
			ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: markOf}.ID()}.String()}}}
	//nolint:staticcheck // there is no typed apply configuration for a client.Object
	Expect(controlPlane.Client().Patch(ctx, cm, client.Apply, client.FieldOwner(manager))).To(Succeed())
}

// startGiver starts a process, and returns it with an owner of the ConfigMaps a and b.
func startGiver(ctx SpecContext, ns string) (*process, *owner) {
	GinkgoHelper()
	p, giver := startProcess(ns, engine.Options{}), newOwner(ctx, ns, "giver")
	p.reconcileUntilReady(ctx, giver,
		[]stacks.RenderedComponent{render("one", configMap(ns, "a", "1"), configMap(ns, "b", "1"))})
	return p, giver
}

var _ = Describe("An object that no inventory lists", suite.Safety, func() {
	It("is adopted and removed if the engine created it for this owner, and left if only its mark "+
		"matches", func(ctx SpecContext) {
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

		By("a stray that the account may not read for a while")
		applyAs(ctx, o, live.FieldManager, "unread", "unread")
		Eventually(func() bool {
			_, known := next.target.Index.Get(stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "unread"})
			return known
		}, shortRetry).Should(BeTrue())
		config, err := controlPlane.ConfigForUser("nobody")
		Expect(err).NotTo(HaveOccurred())
		pass := next.pass(o)
		pass.Client, err = engine.NewClient(config)
		Expect(err).NotTo(HaveOccurred())
		_, err = next.engine.Reconcile(ctx, pass, engine.Prepare(ctx, want, o.policies, next.target.Discovery))
		Expect(err).NotTo(HaveOccurred())
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

	It("is adopted and removed if it is older than the owner, and was handed over to it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p, giver := startGiver(ctx, ns)
		created := labeledConfigMaps(ctx, ns)[0].CreationTimestamp.Time
		Eventually(time.Now, shortRetry).Should(BeTemporally(">", created.Add(time.Second)),
			"times of objects are in seconds")

		o := newOwner(ctx, ns, "o")
		o.policies.AdoptStraysSince = time.Now().Truncate(time.Second)
		giver.policies.HandoverTo = func(string) plan.HandoverDecision {
			return plan.HandoverDecision{To: new(o.Key())}
		}
		p.reconcileUntilReady(ctx, giver, []stacks.RenderedComponent{render("one", configMap(ns, "b", "1"))})
		Expect(giver.inv.Len()).To(Equal(1))

		By("a plan that wants it, but does not apply it yet")
		blocked := engine.Prepare(ctx, []stacks.RenderedComponent{render("one", configMap(ns, "a", "1"))}, o.policies,
			p.target.Discovery)
		blocked[0].BlockedOn = []string{"a dependency"}
		_, err := p.engine.Reconcile(ctx, p.pass(o), blocked)
		Expect(err).NotTo(HaveOccurred())
		By("a plan that does not want it")
		p.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("one", configMap(ns, "c", "1"))})
		Expect(labeledConfigMaps(ctx, ns)).To(ConsistOf(HaveField("Name", "b"), HaveField("Name", "c")))
	})

	It("is adopted by an owner that is removed without its account", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p, giver := startGiver(ctx, ns)
		o := newOwner(ctx, ns, "o") // has not been able to render since it was created
		o.policies.AdoptStraysSince = time.Now().Add(-time.Minute).Truncate(time.Second)
		giver.policies.HandoverTo = func(string) plan.HandoverDecision {
			return plan.HandoverDecision{To: new(o.Key())}
		}
		p.reconcileUntilReady(ctx, giver, []stacks.RenderedComponent{render("one", configMap(ns, "b", "1"))})
		reader, err := p.target.ClientFor(nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.engine.ForgetMissing(ctx, p.target, reader, o)).To(Succeed())
		Expect(o.inv.Len()).To(Equal(1), "the removal waits for the account: nobody else would remove the object")
		p.teardown(ctx, o)
		Expect(labeledConfigMaps(ctx, ns)).To(ConsistOf(HaveField("Name", "b")))
		p.teardown(ctx, giver)
	})

	It("is taken back if its new owner is deleted before the handover", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p, giver := startGiver(ctx, ns)
		deleted := plan.OwnerKey{Installation: ns, Cluster: plan.LocalCluster, Kind: "KsctlInstall", Namespace: ns,
			Name: "deleted"}
		offered := 0
		giver.policies.HandoverTo = func(string) plan.HandoverDecision {
			if offered > 0 {
				return plan.HandoverDecision{}
			}
			return plan.HandoverDecision{To: &deleted}
		}
		pass := p.pass(giver)
		pass.IsActive = func(_ context.Context, to plan.OwnerKey, ref stacks.Ref) (bool, error) {
			Expect(to).To(Equal(deleted))
			Expect(p.target.Index.Strays(deleted.String(), func(stacks.Ref) bool { return false })).To(ConsistOf(ref),
				"an owner that is deleted later finds it")
			offered++
			return false, nil
		}
		_, err := p.engine.Reconcile(ctx, pass, engine.Prepare(ctx,
			[]stacks.RenderedComponent{render("one", configMap(ns, "b", "1"))}, giver.policies, p.target.Discovery))
		Expect(err).NotTo(HaveOccurred())
		Expect(offered).To(Equal(1))
		p.reconcileUntilReady(ctx, giver, []stacks.RenderedComponent{render("one", configMap(ns, "b", "1"))})
		Expect(labeledConfigMaps(ctx, ns)).To(ConsistOf(HaveField("Name", "b")), "the former owner removes it")
		p.teardown(ctx, giver)
	})
})
