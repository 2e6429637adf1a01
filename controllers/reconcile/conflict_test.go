package reconcile_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// quick is how soon a lost race is run again.
const quick = 100 * time.Millisecond

// recorded is a step that writes an entry of the inventory.
func recorded(id string) step {
	return func(_ context.Context, req *request) reconcile.Outcome {
		req.Object.Status.Inventory = intended(id)
		return done
	}
}

var _ = Describe("A write of somebody else", func() {
	DescribeTable("that is not of the status does not keep ours from being written",
		func(ctx SpecContext, between func(*install)) {
			r := newRig(ctx)
			r.run(ctx, reconcile.Waiting{On: "x"})
			generation := r.stored(ctx).Generation
			r.beforeWrite = func() { r.change(ctx, between) }
			_, writes := r.runWith(ctx, recorded("a"))
			Expect(writes).To(Equal([]string{"status", "status"}))
			in := r.stored(ctx)
			Expect(in.Status.Inventory).To(Equal(intended("a")))
			Expect(in.Status.ObservedGeneration).To(Equal(generation), "the spec that was looked at, not the one that came in between")
			between(in)
			Expect(in.Spec).To(Equal(r.stored(ctx).Spec), "what came in between stands")
			Expect(in.Labels).To(Equal(r.stored(ctx).Labels))
			Expect(r.forgotten).To(BeZero())
		},
		Entry("a label", func(in *install) { in.Labels = map[string]string{"a": "b"} }),
		Entry("the spec", func(in *install) { in.Spec.Stack = "another" }),
	)

	It("to the status makes ours be planned again, and nothing is lost", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, done)
		theirs := func() {
			in := r.stored(ctx)
			in.Status.LastAppliedRevision = "theirs"
			Expect(direct.Status().Update(ctx, in)).To(Succeed())
		}
		r.beforeWrite = theirs
		res, _ := r.runWith(ctx, recorded("a"))
		Expect(res.RequeueAfter).To(Equal(quick))
		Expect(r.forgotten).To(Equal(1), "what was planned on the old status is forgotten")
		in := r.stored(ctx)
		Expect(in.Status.Inventory).To(BeNil())
		Expect(in.Status.LastAppliedRevision).To(Equal("theirs"))
		Expect(r.events.got).To(HaveLen(1), "what was not written is not said")

		var seen string
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Status.LastAppliedRevision
			return recorded("a")(ctx, req)
		})
		Expect(seen).To(Equal("theirs"))
		Expect(writes).To(Equal([]string{"status"}))
		in = r.stored(ctx)
		Expect(in.Status.Inventory).To(Equal(intended("a")))
		Expect(in.Status.LastAppliedRevision).To(Equal("theirs"))
	})

	It("to the status while something is put on record ends the step", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, done)
		r.beforeWrite = func() {
			in := r.stored(ctx)
			in.Status.LastAppliedRevision = "theirs"
			Expect(direct.Status().Update(ctx, in)).To(Succeed())
		}
		res, _ := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			req.Object.Status.Inventory = intended("a")
			err := req.Persist(ctx, "doing it")
			Expect(err).To(BeAssignableToTypeOf(&reconcile.ConflictError{}))
			return reconcile.Retry{Err: err}
		})
		Expect(res.RequeueAfter).To(Equal(quick))
		Expect(r.forgotten).To(Equal(1))
		Expect(ready(r.stored(ctx)).Status).To(Equal(metav1.ConditionTrue), "a lost race is no failure to tell of")
		Expect(r.stored(ctx).Status.Inventory).To(BeNil())
	})

	It("that makes another object of that name gets nothing of ours", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Deferred{}) // so that the two have the same status
		r.beforeWrite = func() {
			r.change(ctx, func(in *install) { in.Finalizers = nil })
			Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
			Expect(direct.Create(ctx, r.wanted())).To(Succeed())
		}
		r.runWith(ctx, recorded("a"))
		Expect(r.forgotten).To(Equal(1))
		in := r.stored(ctx)
		Expect(in.Status.Inventory).To(BeNil())
		Expect(in.Status.Conditions).To(BeEmpty())
	})

	It("that deletes the object is no error", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, done)
		r.beforeWrite = func() {
			r.change(ctx, func(in *install) { in.Finalizers = nil })
			Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		}
		r.runWith(ctx, recorded("a"))
		Expect(r.forgotten).To(Equal(1))
	})

	It("before the finalizer is there keeps the steps from being done", func(ctx SpecContext) {
		r := newRig(ctx)
		r.beforeWrite = func() { r.annotate(ctx, "somebody", "else") }
		res, writes := r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object"}))
		Expect(res.RequeueAfter).To(Equal(quick))
		Expect(r.called).To(BeZero(), "nothing is owned without a finalizer")
		r.run(ctx, done)
		Expect(r.stored(ctx).Finalizers).To(Equal([]string{appsv1.Finalizer}))
	})
})

var _ = Describe("A cache that is behind", func() {
	It("does not hide our own writes", func(ctx SpecContext) {
		r := newRig(ctx)
		old := r.stored(ctx)
		r.runWith(ctx, recorded("a"))
		r.cached = old // without our finalizer and our status
		var seen *appsv1.Inventory
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Status.Inventory.DeepCopy()
			return recorded("a")(ctx, req)
		})
		Expect(seen).To(Equal(intended("a")))
		Expect(writes).To(BeEmpty())

		_, writes = r.runWith(ctx, recorded("b"))
		Expect(writes).To(Equal([]string{"status"}), "without a conflict")
		Expect(r.stored(ctx).Status.Inventory).To(Equal(intended("b")))
	})

	It("is what counts when it has something newer", func(ctx SpecContext) {
		r := newRig(ctx)
		r.runWith(ctx, recorded("a"))
		r.change(ctx, func(in *install) { in.Spec.Stack = "new" })
		var seen string
		r.runWith(ctx, func(_ context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Spec.Stack
			return done
		})
		Expect(seen).To(Equal("new"))
	})
})
