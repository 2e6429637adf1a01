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
	It("waits until nothing is left, and then takes off our finalizer alone", func(ctx SpecContext) {
		r := newRig(ctx, func(in *install) { in.Finalizers = []string{theirFinalizer} })
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())

		_, writes := r.run(ctx, reconcile.Waiting{On: "2 objects are left", Reason: reconcile.RemovingReason})
		Expect(writes).To(Equal([]string{"status"}))
		in := r.stored(ctx)
		Expect(in.Finalizers).To(ConsistOf(theirFinalizer, appsv1.Finalizer))
		Expect(ready(in).Reason).To(Equal(reconcile.RemovingReason))
		Expect(r.forgotten).To(BeZero())

		_, writes = r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object"}), "what goes needs no more status")
		in = r.stored(ctx)
		Expect(in.Finalizers).To(Equal([]string{theirFinalizer}))
		Expect(ready(in).Status).NotTo(Equal(metav1.ConditionTrue), "an object that goes is never said to be ready")
		Expect(r.forgotten).To(Equal(1))
		Expect(*r.gauges).To(Equal(gauges{}), "metrics go with what it owned")

		r.called = 0
		_, writes = r.run(ctx, done)
		Expect(*r.gauges).To(Equal(gauges{}), "and stay away while others hold it")
		Expect(writes).To(BeEmpty())
		Expect(r.called).To(BeZero(), "it owns nothing any more")

		r.change(ctx, func(in *install) { in.Finalizers = nil })
		r.run(ctx, done)
		Expect(r.forgotten).To(Equal(2))
		Expect(*r.gauges).To(Equal(gauges{}), "metrics go with the object")
	})

	DescribeTable("keeps the finalizer unless the steps are done", func(ctx SpecContext, out reconcile.Outcome) {
		r := newRig(ctx)
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.run(ctx, out)
		Expect(r.stored(ctx).Finalizers).To(Equal([]string{appsv1.Finalizer}))
	},
		Entry("waiting", reconcile.Waiting{On: "x"}),
		Entry("waiting too long", reconcile.Waiting{On: "x", Late: true}),
		Entry("failing", reconcile.Retry{Err: errBoom}),
		Entry("stalled", reconcile.Stalled{Err: errBoom}),
		Entry("nothing known", reconcile.Deferred{Until: noon.Add(1)}),
	)

	It("is done once, also when the cache does not know yet", func(ctx SpecContext) {
		r := newRig(ctx)
		r.runWith(ctx, recorded("a"))
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		stale := r.stored(ctx)
		r.run(ctx, done)

		r.cached, r.called = stale, 0
		_, writes := r.run(ctx, done)
		Expect(r.called).To(BeZero(), "what it owned then is not looked for again")
		Expect(writes).To(BeEmpty())

		r.cached = nil
		r.run(ctx, done)
		r.called = 0
		Expect(direct.Create(ctx, r.wanted())).To(Succeed())
		r.run(ctx, done)
		Expect(r.called).To(Equal(1), "another object of that name is not held for it")
	})

	It("is done also while the object is suspended", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, done)
		r.change(ctx, func(in *install) { in.Spec.Suspend = true })
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.run(ctx, done)
		Expect(direct.Get(ctx, r.key, &install{})).NotTo(Succeed())
	})

	It("of an object that never got our finalizer does nothing", func(ctx SpecContext) {
		r := newRig(ctx, func(in *install) { in.Finalizers = []string{theirFinalizer} })
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		_, writes := r.run(ctx, done)
		Expect(writes).To(BeEmpty())
		Expect(r.called).To(BeZero())
	})

	It("leaves the finalizer where somebody wrote in between, and then goes on", func(ctx SpecContext) {
		r := newRig(ctx, func(in *install) { in.Finalizers = []string{theirFinalizer} })
		r.run(ctx, done)
		Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		r.beforeWrite = func() { r.change(ctx, func(in *install) { in.Finalizers = in.Finalizers[1:] }) }
		res, _ := r.run(ctx, done)
		Expect(res.RequeueAfter).To(Equal(quick))
		Expect(r.stored(ctx).Finalizers).To(Equal([]string{appsv1.Finalizer}), "nothing of theirs is put back")
		r.run(ctx, done)
		Expect(direct.Get(ctx, r.key, &install{})).NotTo(Succeed())
	})
})
