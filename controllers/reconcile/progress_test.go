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

func intended(id string) *appsv1.Inventory {
	return &appsv1.Inventory{Entries: []appsv1.InventoryEntry{{ID: id, Version: "v1", State: appsv1.EntryIntended}}}
}

var _ = Describe("Progress", func() {
	It("is written at most once a second", func(ctx SpecContext) {
		r := newRig(ctx)
		_, writes := r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		Expect(writes).To(Equal([]string{"object", "status"}), "the first is written at once")

		r.clock.SetTime(noon.Add(300 * time.Millisecond))
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9"})
		Expect(writes).To(BeEmpty())
		Expect(res.RequeueAfter).To(Equal(700*time.Millisecond), "it is written when its time comes")
		Expect(ready(r.stored(ctx)).Message).To(Equal("1 of 9"))

		r.clock.SetTime(noon.Add(time.Second))
		res, writes = r.run(ctx, reconcile.Waiting{On: "3 of 9"})
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res.RequeueAfter).To(Equal(reconcile.DefaultInterval))
		Expect(ready(r.stored(ctx)).Message).To(Equal("3 of 9"))
		Expect(r.events.got).To(HaveLen(1), "progress is one outcome, whatever it says")
	})

	DescribeTable("is written at once when the clock was set", func(ctx SpecContext, jump time.Duration) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.clock.SetTime(noon.Add(jump))
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9"})
		Expect(writes).To(Equal([]string{"status"}))
		Expect(res.RequeueAfter).To(Equal(reconcile.DefaultInterval))
		Expect(ready(r.stored(ctx)).Message).To(Equal("2 of 9"))
		r.clock.SetTime(noon.Add(jump + 300*time.Millisecond))
		_, writes = r.run(ctx, reconcile.Waiting{On: "3 of 9"})
		Expect(writes).To(BeEmpty(), "from then on it counts as before")
	}, Entry("a year forth", 365*24*time.Hour), Entry("a year back", -365*24*time.Hour))

	It("does not put off what is due sooner", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		res, writes := r.run(ctx, reconcile.Waiting{On: "2 of 9", Until: noon.Add(200 * time.Millisecond)})
		Expect(writes).To(BeEmpty())
		Expect(res.RequeueAfter).To(Equal(200 * time.Millisecond))
	})

	DescribeTable("is not put off when it is more than that", func(ctx SpecContext, change func(SpecContext, *rig), out reconcile.Outcome) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		change(ctx, r)
		_, writes := r.run(ctx, out)
		Expect(writes).To(Equal([]string{"status"}))
	},
		Entry("another outcome", func(SpecContext, *rig) {}, done),
		Entry("another reason", func(SpecContext, *rig) {}, reconcile.Waiting{On: "2 of 9", Reason: reconcile.IndexStaleReason}),
		Entry("late", func(SpecContext, *rig) {}, reconcile.Waiting{On: "2 of 9", Late: true}),
		Entry("a person asked", func(ctx SpecContext, r *rig) { r.annotate(ctx, appsv1.RequestedAtAnnotation, "now") }, reconcile.Waiting{On: "2 of 9"}),
		Entry("another spec", func(ctx SpecContext, r *rig) { r.change(ctx, func(in *install) { in.Spec.Stack = "t" }) }, reconcile.Waiting{On: "2 of 9"}),
	)

	It("is not put off with another condition beside it", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		_, writes := r.runWith(ctx, func(_ context.Context, req *request) reconcile.Outcome {
			apimeta.SetStatusCondition(&req.Object.Status.Conditions, metav1.Condition{Type: appsv1.PublishedCondition, Status: metav1.ConditionUnknown, Reason: "Progressing"})
			return reconcile.Waiting{On: "2 of 9"}
		})
		Expect(writes).To(Equal([]string{"status"}))
	})

	It("that must be on record is written at once, and the outcome after it", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.annotate(ctx, "somebody", "else")
		_, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			Expect(r.writes).To(BeEmpty(), "there was nothing to record")
			req.Object.Status.Inventory = intended("a")
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			Expect(r.stored(ctx).Status.Inventory).To(Equal(intended("a")))
			Expect(ready(r.stored(ctx))).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Message", "doing it")))
			Expect(r.stored(ctx).Status.Conditions).To(HaveLen(2), "and that it is reconciling")
			r.annotate(ctx, "somebody", "again") // as it may at any time
			req.Object.Status.Inventory.Entries[0].State = appsv1.EntryApplied
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			req.Object.Status.LastAppliedRevision = "r1"
			return done
		})
		Expect(writes).To(Equal([]string{"status", "status", "status", "status"}), "the third again, with another resourceVersion")
		in := r.stored(ctx)
		Expect(in.Status.Inventory.Entries[0].State).To(Equal(appsv1.EntryApplied))
		Expect(in.Status.LastAppliedRevision).To(Equal("r1"))
		Expect(ready(in).Status).To(Equal(metav1.ConditionTrue))
		Expect(in.Annotations).To(HaveKeyWithValue("somebody", "again"))
		Expect(r.forgotten).To(BeZero())
	})

	It("counts what was put on record", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx, reconcile.Waiting{On: "1 of 9"})
		r.clock.SetTime(noon.Add(time.Minute))
		res, writes := r.runWith(ctx, func(ctx context.Context, req *request) reconcile.Outcome {
			req.Object.Status.Inventory = intended("a")
			Expect(req.Persist(ctx, "doing it")).To(Succeed())
			return reconcile.Waiting{On: "2 of 9"}
		})
		Expect(writes).To(Equal([]string{"status"}), "the message can wait")
		Expect(res.RequeueAfter).To(Equal(time.Second))
	})
})

var _ = Describe("A revision that changes nothing", func() {
	minor := func(revision string) reconcile.Outcome {
		return reconcile.Done{Message: "Applied revision " + revision, Revision: revision, Minor: true}
	}

	It("is said after what others have to say, once they had their turn", func(ctx SpecContext) {
		r := newRig(ctx)
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
		Expect(res.Priority).To(Equal(ptr.To(0)), "it has its usual one again")
		_, writes = r.run(ctx, minor("r3"))
		Expect(writes).To(BeEmpty(), "each revision anew")
		_, writes = r.run(ctx, minor("r4"))
		Expect(writes).To(Equal([]string{"status"}), "but not for longer when they come fast")
	})

	It("is said at once when a person asks, or when it turns out to be more", func(ctx SpecContext) {
		r := newRig(ctx)
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
