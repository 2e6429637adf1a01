package reconcile_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

const theirFinalizer = "example.com/other"

var _ = Describe("Deletion", func() {
	It("waits for the teardown, and then removes only our finalizer", func(ctx SpecContext) {
		r := newFixture(ctx, func(in *fullInstall) { in.Finalizers = []string{theirFinalizer} })
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())

		_, writes := r.run(ctx, reconcile.Waiting{On: "2 objects are left", Reason: appsv1.RemovingReason})
		Expect(writes).To(Equal([]string{"status"}))
		in := r.stored(ctx)
		Expect(in.Finalizers).To(ConsistOf(theirFinalizer, appsv1.Finalizer))
		Expect(ready(in).Reason).To(Equal(appsv1.RemovingReason))
		Expect(r.forgotten).To(BeZero())

		_, writes = r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object"}), "no status write for an object that goes away")
		in = r.stored(ctx)
		Expect(in.Finalizers).To(Equal([]string{theirFinalizer}))
		Expect(ready(in).Status).NotTo(Equal(metav1.ConditionTrue), "a deleted object never becomes Ready")
		Expect(r.forgotten).To(Equal(1))
		Expect(*r.gauges).To(Equal(gauges{}), "the metrics are dropped with the finalizer")

		r.called = 0
		_, writes = r.run(ctx, done)
		Expect(*r.gauges).To(Equal(gauges{}), "the metrics stay dropped while finalizers of others remain")
		Expect(writes).To(BeEmpty())
		Expect(r.called).To(BeZero(), "the object owns nothing")

		r.change(ctx, func(in *fullInstall) { in.Finalizers = nil })
		r.run(ctx, done)
		Expect(r.forgotten).To(Equal(2))
		Expect(*r.gauges).To(Equal(gauges{}), "the metrics are dropped with the object")
	})

	DescribeTable("keeps the finalizer unless the outcome is Done:", func(ctx SpecContext, out reconcile.Outcome) {
		r := newFixture(ctx)
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.run(ctx, out)
		Expect(r.stored(ctx).Finalizers).To(Equal([]string{appsv1.Finalizer}))
	},
		Entry("waiting", reconcile.Waiting{On: "x"}),
		Entry("timed out", reconcile.Waiting{On: "x", TimedOut: true}),
		Entry("retry", reconcile.Retry{Err: errBoom}),
		Entry("stalled", reconcile.Stalled{Err: errBoom}),
		Entry("deferred", reconcile.Deferred{RequeueAt: noon.Add(1)}),
	)

	It("calls the steps once, also with a stale cache", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.runWith(ctx, setInventory("a"))
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		stale := r.stored(ctx)
		r.run(ctx, done)

		r.cachedObject, r.called = stale, 0
		_, writes := r.run(ctx, done)
		Expect(r.called).To(BeZero(), "the teardown does not run again")
		Expect(writes).To(BeEmpty())

		r.cachedObject = nil
		r.run(ctx, done)
		r.called = 0
		Expect(direct.Create(ctx, r.newObject())).To(Succeed())
		r.run(ctx, done)
		Expect(r.called).To(Equal(1), "another object with that name is reconciled")
	})

	It("also proceeds while the object is suspended", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.change(ctx, func(in *fullInstall) { in.Spec.Suspend = true })
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.run(ctx, done)
		Expect(direct.Get(ctx, r.key, &fullInstall{})).NotTo(Succeed())
	})

	It("does nothing for an object without our finalizer", func(ctx SpecContext) {
		r := newFixture(ctx, func(in *fullInstall) { in.Finalizers = []string{theirFinalizer} })
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		_, writes := r.run(ctx, done)
		Expect(writes).To(BeEmpty())
		Expect(r.called).To(BeZero())
	})

	It("keeps the finalizer after a concurrent write, and removes it in the next reconcile", func(ctx SpecContext) {
		r := newFixture(ctx, func(in *fullInstall) { in.Finalizers = []string{theirFinalizer} })
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.beforeWrite = func() { r.change(ctx, func(in *fullInstall) { in.Finalizers = in.Finalizers[1:] }) }
		res, _ := r.run(ctx, done)
		Expect(res.RequeueAfter).To(Equal(conflictRequeue))
		Expect(r.stored(ctx).Finalizers).
			To(Equal([]string{appsv1.Finalizer}), "the removed finalizer of the other writer is not restored")
		r.run(ctx, done)
		Expect(direct.Get(ctx, r.key, &fullInstall{})).NotTo(Succeed())
	})
})
