package reconcile_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

func intendedInventory(id string) *appsv1.Inventory {
	return &appsv1.Inventory{Entries: []appsv1.InventoryEntry{{ID: id, Version: "v1", State: appsv1.EntryIntended}}}
}

var _ = Describe("Progress", func() {
	It("is written at most once a second", func(ctx SpecContext) {
		r := newFixture(ctx)
		_, writes := r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		Expect(writes).To(Equal([]string{"object", "status"}), "the first message is written immediately")

		r.clock.SetTime(noon.Add(300 * time.Millisecond))
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9"})
		Expect(writes).To(BeEmpty())
		Expect(res.RequeueAfter).To(Equal(700*time.Millisecond), "the write is due at the end of the second")
		Expect(ready(r.stored(ctx)).Message).To(Equal("1 of 9"))

		r.clock.SetTime(noon.Add(time.Second))
		res, writes = r.run(ctx, reconcile.Waiting{On: "3 of 9"})
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res.RequeueAfter).To(Equal(reconcile.DefaultInterval))
		Expect(ready(r.stored(ctx)).Message).To(Equal("3 of 9"))
		Expect(r.events.got).To(HaveLen(1), "a new progress message is no new outcome")
	})

	DescribeTable("is written immediately after a clock jump", func(ctx SpecContext, jump time.Duration) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.clock.SetTime(noon.Add(jump))
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9"})
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res.RequeueAfter).To(Equal(reconcile.DefaultInterval))
		Expect(ready(r.stored(ctx)).Message).To(Equal("2 of 9"))
		r.clock.SetTime(noon.Add(jump + 300*time.Millisecond))
		_, writes = r.run(ctx, reconcile.Waiting{On: "3 of 9"})
		Expect(writes).To(BeEmpty(), "the limit applies again")
	}, Entry("a year forward", 365*24*time.Hour), Entry("a year backward", -365*24*time.Hour))

	It("does not delay an earlier requeue of the outcome", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9", RequeueAt: noon.Add(200 * time.Millisecond)})
		Expect(writes).To(BeEmpty())
		Expect(res.RequeueAfter).To(Equal(200 * time.Millisecond))
	})

	DescribeTable("is not delayed with another change:", func(ctx SpecContext, change func(SpecContext, *fixture),
		out reconcile.Outcome) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		change(ctx, r)
		_, writes := r.run(ctx, out)
		Expect(writes).To(Equal([]string{"status"}))
	},
		Entry("another outcome", func(SpecContext, *fixture) {}, done),
		Entry("another reason", func(SpecContext, *fixture) {},
			reconcile.Waiting{On: "2 of 9", Reason: appsv1.IndexStaleReason}),
		Entry("a timeout", func(SpecContext, *fixture) {}, reconcile.Waiting{On: "2 of 9", TimedOut: true}),
		Entry("a reconcile request", func(ctx SpecContext, r *fixture) {
			r.annotate(ctx, appsv1.RequestedAtAnnotation, "now")
		}, reconcile.Waiting{On: "2 of 9"}),
		Entry("another spec", func(ctx SpecContext, r *fixture) {
			r.change(ctx, func(in *fullInstall) { in.Spec.Stack = "t" })
		}, reconcile.Waiting{On: "2 of 9"}),
	)

	It("is not delayed with another condition", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		_, writes := r.runWith(ctx, func(_ context.Context, req *request) reconcile.Outcome {
			apimeta.SetStatusCondition(&req.Object.Status.Conditions,
				metav1.Condition{Type: appsv1.PublishedCondition, Status: metav1.ConditionUnknown,
					Reason: "Progressing"})
			return reconcile.Waiting{On: "2 of 9"}
		})
		Expect(writes).To(Equal([]string{"status"}))
	})

	It("is written immediately by Persist, and the outcome after it", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.annotate(ctx, "somebody", "else")
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			Expect(r.writes).To(BeEmpty(), "the status did not change")
			req.Object.Status.Inventory = intendedInventory("a")
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			Expect(r.stored(ctx).Status.Inventory).To(Equal(intendedInventory("a")))
			Expect(ready(r.stored(ctx))).
				To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Message", "doing it")))
			Expect(r.stored(ctx).Status.Conditions).To(HaveLen(2), "Ready and Reconciling")
			r.annotate(ctx, "somebody", "again") // a concurrent write
			req.Object.Status.Inventory.Entries[0].State = appsv1.EntryApplied
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			req.Object.Status.LastAppliedRevision = "r1"
			return done
		})
		Expect(writes).To(Equal([]string{"status", "status", "status", "status"}),
			"the second Persist writes twice, because of a new resourceVersion")
		in := r.stored(ctx)
		Expect(in.Status.Inventory.Entries[0].State).To(Equal(appsv1.EntryApplied))
		Expect(in.Status.LastAppliedRevision).To(Equal("r1"))
		Expect(ready(in).Status).To(Equal(metav1.ConditionTrue))
		Expect(in.Annotations).To(HaveKeyWithValue("somebody", "again"))
		Expect(r.forgotten).To(BeZero())
	})

	It("counts writes of Persist for the limit", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.clock.SetTime(noon.Add(time.Minute))
		res, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			req.Object.Status.Inventory = intendedInventory("a")
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			return reconcile.Waiting{On: "2 of 9"}
		})
		Expect(writes).To(Equal([]string{"status"}), "the message is delayed")
		Expect(res.RequeueAfter).To(Equal(time.Second))
	})
})

var _ = Describe("A status write with only a new revision", func() {
	minor := func(revision string) reconcile.Outcome {
		return reconcile.Done{Message: "Applied revision " + revision, Revision: revision, RevisionOnly: true}
	}

	It("yields once to other objects and returns to the usual priority", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		res, writes := r.run(ctx, minor("r2"))
		Expect(writes).To(BeEmpty())
		Expect(res).To(Equal(ctrl.Result{RequeueAfter: time.Millisecond, Priority: ptr.To(handler.LowPriority)}))
		Expect(ready(r.stored(ctx)).Message).NotTo(ContainSubstring("r2"))

		res, writes = r.run(ctx, minor("r2"))
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res).To(Equal(ctrl.Result{RequeueAfter: reconcile.DefaultInterval, Priority: ptr.To(0)}))
		Expect(ready(r.stored(ctx)).Message).To(ContainSubstring("r2"))

		res, _ = r.run(ctx, done)
		Expect(res.Priority).To(Equal(ptr.To(0)), "the priority is the usual one again")
		_, writes = r.run(ctx, minor("r3"))
		Expect(writes).To(BeEmpty(), "each new revision yields again")
		_, writes = r.run(ctx, minor("r4"))
		Expect(writes).
			To(Equal([]string{"status"}), "but a revision that follows immediately does not yield a second time")
	})

	It("does not yield with a reconcile request or with another outcome", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.annotate(ctx, appsv1.RequestedAtAnnotation, "now")
		_, writes := r.run(ctx, minor("r2"))
		Expect(writes).To(Equal([]string{"status"}))

		_, writes = r.run(ctx, minor("r3"))
		Expect(writes).To(BeEmpty())
		res, writes := r.run(ctx, reconcile.Waiting{On: "an object"})
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res.Priority).To(Equal(ptr.To(0)))
	})
})
