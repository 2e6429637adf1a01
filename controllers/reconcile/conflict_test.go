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

// conflictRequeue is the requeue after a conflict.
const conflictRequeue = 100 * time.Millisecond

// setInventory returns a step that sets the inventory.
func setInventory(id string) step {
	return func(_ context.Context, req *request) reconcile.Outcome {
		req.Object.Status.Inventory = intendedInventory(id)
		return done
	}
}

var _ = Describe("A concurrent write", func() {
	DescribeTable("outside the status does not prevent our status write:",
		func(ctx SpecContext, between func(*fullInstall)) {
			r := newFixture(ctx)
			r.run(ctx, reconcile.Waiting{On: "x"})
			generation := r.stored(ctx).Generation
			r.beforeWrite = func() { r.change(ctx, between) }
			_, writes := r.runWith(ctx, setInventory("a"))
			Expect(writes).To(Equal([]string{"status", "status"}))
			in := r.stored(ctx)
			Expect(in.Status.Inventory).To(Equal(intendedInventory("a")))
			Expect(in.Status.ObservedGeneration).
				To(Equal(generation), "the generation of the reconciled spec, not of the concurrent change")
			between(in)
			Expect(in.Spec).To(Equal(r.stored(ctx).Spec), "the concurrent change is kept")
			Expect(in.Labels).To(Equal(r.stored(ctx).Labels))
			Expect(r.forgotten).To(BeZero())
		},
		Entry("a label", func(in *fullInstall) { in.Labels = map[string]string{"a": "b"} }),
		Entry("the spec", func(in *fullInstall) { in.Spec.Stack = "another" }),
	)

	It("of the status makes the steps run again, and loses neither write", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		theirs := func() {
			in := r.stored(ctx)
			in.Status.LastAppliedRevision = "theirs"
			Expect(direct.Status().Update(ctx, in)).To(Succeed())
		}
		r.beforeWrite = theirs
		res, _ := r.runWith(ctx, setInventory("a"))
		Expect(res.RequeueAfter).To(Equal(conflictRequeue))
		Expect(r.forgotten).To(Equal(1), "the in-memory state of the old status is dropped")
		in := r.stored(ctx)
		Expect(in.Status.Inventory).To(BeNil())
		Expect(in.Status.LastAppliedRevision).To(Equal("theirs"))
		Expect(r.events.got).To(HaveLen(1), "no event for an outcome that was not written")

		var seen string
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Status.LastAppliedRevision
			return setInventory("a")(ctx, req)
		})
		Expect(seen).To(Equal("theirs"))
		Expect(writes).To(Equal([]string{"status"}))
		in = r.stored(ctx)
		Expect(in.Status.Inventory).To(Equal(intendedInventory("a")))
		Expect(in.Status.LastAppliedRevision).To(Equal("theirs"))
	})

	It("of the status during Persist ends the step", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.beforeWrite = func() {
			in := r.stored(ctx)
			in.Status.LastAppliedRevision = "theirs"
			Expect(direct.Status().Update(ctx, in)).To(Succeed())
		}
		res, _ := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			req.Object.Status.Inventory = intendedInventory("a")
			err := req.Persist(ctx, "doing it")
			Expect(err).To(BeAssignableToTypeOf(&reconcile.ConflictError{}))
			return reconcile.Retry{Err: err}
		})
		Expect(res.RequeueAfter).To(Equal(conflictRequeue))
		Expect(r.forgotten).To(Equal(1))
		Expect(ready(r.stored(ctx)).Status).To(Equal(metav1.ConditionTrue), "a conflict is not reported as a failure")
		Expect(r.stored(ctx).Status.Inventory).To(BeNil())
	})

	It("that replaces the object gets none of our status", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Deferred{}) // so that the two have the same status
		r.beforeWrite = func() {
			r.change(ctx, func(in *fullInstall) { in.Finalizers = nil })
			Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
			Expect(direct.Create(ctx, r.newObject())).To(Succeed())
		}
		r.runWith(ctx, setInventory("a"))
		Expect(r.forgotten).To(Equal(1))
		in := r.stored(ctx)
		Expect(in.Status.Inventory).To(BeNil())
		Expect(in.Status.Conditions).To(BeEmpty())
	})

	It("that deletes the object is no error", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.beforeWrite = func() {
			r.change(ctx, func(in *fullInstall) { in.Finalizers = nil })
			Expect(direct.Delete(ctx, r.stored(ctx))).To(Succeed())
		}
		r.runWith(ctx, setInventory("a"))
		Expect(r.forgotten).To(Equal(1))
	})

	It("during the write of the finalizer postpones the steps", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.beforeWrite = func() { r.annotate(ctx, "somebody", "else") }
		res, writes := r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object"}))
		Expect(res.RequeueAfter).To(Equal(conflictRequeue))
		Expect(r.called).To(BeZero(), "no steps without a finalizer")
		r.run(ctx, done)
		Expect(r.stored(ctx).Finalizers).To(Equal([]string{appsv1.Finalizer}))
	})
})

var _ = Describe("A stale cache", func() {
	It("does not hide our own writes", func(ctx SpecContext) {
		r := newFixture(ctx)
		old := r.stored(ctx)
		r.runWith(ctx, setInventory("a"))
		r.cachedObject = old // without our finalizer and our status
		var seen *appsv1.Inventory
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Status.Inventory.DeepCopy()
			return setInventory("a")(ctx, req)
		})
		Expect(seen).To(Equal(intendedInventory("a")))
		Expect(writes).To(BeEmpty())

		_, writes = r.runWith(ctx, setInventory("b"))
		Expect(writes).To(Equal([]string{"status"}), "without a conflict")
		Expect(r.stored(ctx).Status.Inventory).To(Equal(intendedInventory("b")))
	})

	It("wins with a newer version", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.runWith(ctx, setInventory("a"))
		r.change(ctx, func(in *fullInstall) { in.Spec.Stack = "new" })
		var seen string
		r.runWith(ctx, func(_ context.Context, req *request) reconcile.Outcome {
			seen = req.Object.Spec.Stack
			return done
		})
		Expect(seen).To(Equal("new"))
	})
})
