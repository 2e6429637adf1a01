package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

var done = reconcile.Done{Message: "all well", Revision: "main@sha1:1"}

var errBoom = errors.New("boom")

func ready(in *fullInstall) metav1.Condition {
	GinkgoHelper()
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	Expect(c).NotTo(BeNil(), "%+v", in.Status)
	return *c
}

var _ = Describe("The reconciler", func() {
	It("writes the finalizer and the status, and no part of the spec", func(ctx SpecContext) {
		r := newFixture(ctx)
		spec := map[string]any{"stack": "s", "interval": "90s", "timeout": "0.5m",
			"sourceRef": map[string]any{"kind": "KsctlSource", "name": "x"}}
		applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": appsv1.GroupVersion.String(),
			"kind": "KsctlInstall",
			"metadata": map[string]any{"namespace": r.key.Namespace, "name": r.key.Name,
				"finalizers": []any{"example.com/other"}}, "spec": spec}}
		Expect(direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("git"),
			client.ForceOwnership)).To(Succeed())
		generation := r.stored(ctx).Generation

		_, writes := r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object", "status"}))
		in := r.stored(ctx)
		Expect(in.Finalizers).To(ConsistOf("example.com/other", appsv1.Finalizer))
		Expect(in.Generation).To(Equal(generation))
		Expect(in.Status.ObservedGeneration).To(Equal(generation))
		Expect(unstructuredOf(ctx, r).Object["spec"]).To(Equal(spec), "90s stays 90s, and no default is added")

		ours := 0
		for _, m := range in.ManagedFields {
			if m.Manager != fieldOwner {
				continue
			}
			ours++
			var fields map[string]any
			Expect(json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields)).To(Succeed())
			if m.Subresource == "status" {
				Expect(fields).To(And(HaveLen(1), HaveKey("f:status")))
				continue
			}
			Expect(fields).To(And(HaveLen(1), HaveKey("f:metadata")))
			Expect(fields["f:metadata"]).To(And(HaveLen(1), HaveKey("f:finalizers")))
		}
		Expect(ours).To(Equal(2))
	})

	It("writes nothing without a change, also in a new process", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		before := r.stored(ctx)
		r.clock.SetTime(noon.Add(time.Hour))
		res, writes := r.run(ctx, done)
		Expect(writes).To(BeEmpty())
		Expect(res.RequeueAfter).To(Equal(reconcile.DefaultInterval))

		r.start()
		r.gauges.ready = ""
		_, writes = r.run(ctx, done)
		Expect(writes).To(BeEmpty())
		Expect(r.stored(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(r.events.got).To(HaveLen(1), "one event per change of outcome, not per reconcile")
		Expect(r.gauges.ready).To(Equal(metav1.ConditionTrue), "a new process records the condition, too")
	})

	DescribeTable("handles each reconcile request with exactly one write:", func(ctx SpecContext, at string) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.annotate(ctx, appsv1.RequestedAtAnnotation, at)
		var requested []bool
		ask := func(_ context.Context, req *request) reconcile.Outcome {
			requested = append(requested, req.Requested)
			return done
		}
		_, writes := r.runWith(ctx, ask)
		Expect(writes).To(Equal([]string{"status"}), "exactly one write")
		Expect(r.stored(ctx).Status.LastHandledReconcileAt).To(Equal(at))
		_, writes = r.runWith(ctx, ask)
		Expect(writes).To(BeEmpty())
		r.start()
		_, writes = r.runWith(ctx, ask)
		Expect(writes).To(BeEmpty())
		Expect(requested).To(Equal([]bool{true, false, false}))
		Expect(r.events.got).To(HaveLen(1))
	},
		Entry("a timestamp", "2026-05-01T12:00:00Z"),
		Entry("not a timestamp", "yesterday, \"perhaps\"\n"),
		Entry("a long value", strings.Repeat("x", 10_000)),
	)

	It("writes nothing while the object is suspended", func(ctx SpecContext) {
		r := newFixture(ctx, func(in *fullInstall) { in.Spec.Suspend = true })
		r.annotate(ctx, appsv1.RequestedAtAnnotation, "now")
		res, writes := r.run(ctx, done)
		Expect(writes).To(BeEmpty())
		Expect(res).To(BeZero())
		Expect(r.called).To(BeZero())
		Expect(r.stored(ctx).Finalizers).To(BeEmpty())
		Expect(*r.gauges.suspended).To(BeTrue())

		r.change(ctx, func(in *fullInstall) { in.Spec.Suspend = false })
		_, writes = r.run(ctx, done)
		Expect(writes).To(Equal([]string{"object", "status"}))
		Expect(*r.gauges.suspended).To(BeFalse())
	})

	It("writes nothing for a deferred outcome", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		r.annotate(ctx, appsv1.RequestedAtAnnotation, "now")
		before := r.stored(ctx)
		for until, wait := range map[time.Time]time.Duration{noon.Add(3 * time.Second): 3 * time.Second,
			{}: reconcile.DefaultInterval, noon.Add(-1): time.Millisecond} {
			res, writes := r.runWith(ctx, func(_ context.Context, req *request) reconcile.Outcome {
				req.Object.Status.LastAppliedRevision = "r9"
				return reconcile.Deferred{RequeueAt: until}
			})
			Expect(writes).To(BeEmpty())
			Expect(res.RequeueAfter).To(Equal(wait))
		}
		Expect(r.stored(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		_, writes := r.run(ctx, done)
		Expect(writes).To(Equal([]string{"status"}))
		Expect(r.stored(ctx).Status.LastHandledReconcileAt).
			To(Equal("now"), "the request is handled with the next outcome")
	})

	It("writes nothing when the process shuts down during the steps", func(ctx SpecContext) {
		r := newFixture(ctx)
		r.run(ctx, done)
		ending, end := context.WithCancel(ctx)
		r.reconcile = func(context.Context, *request) reconcile.Outcome {
			end()
			return reconcile.Retry{Err: context.Canceled}
		}
		r.writes = nil
		_, err := r.Reconcile(ending, ctrl.Request{NamespacedName: r.key})
		Expect(err).To(MatchError(context.Canceled))
		Expect(r.writes).To(BeEmpty())
		Expect(ready(r.stored(ctx)).Status).To(Equal(metav1.ConditionTrue))
	})

	It("writes messages of any length and encoding in a form that the API server accepts", func(ctx SpecContext) {
		r := newFixture(ctx)
		for _, message := range []string{strings.Repeat("€", 1<<20), "broken \xff\xfe bytes \x00", "%s %d"} {
			r.run(ctx, reconcile.Stalled{Err: errors.New(message)})
			Expect(ready(r.stored(ctx)).Status).To(Equal(metav1.ConditionFalse))
			Expect(r.events.got).NotTo(BeEmpty())
			last := r.events.got[len(r.events.got)-1]
			Expect(last.message).To(Equal(ready(r.stored(ctx)).Message), "the event has the message of the condition")
			Expect(last.kind).To(Equal(corev1.EventTypeWarning))
		}
	})

	It("records one event per change of outcome, with the revision", func(ctx SpecContext) {
		r := newFixture(ctx)
		for _, out := range []reconcile.Outcome{done, done, reconcile.Retry{Err: errors.New("boom"),
			Revision: "main@sha1:2"}, reconcile.Retry{Err: errors.New("boom"), Revision: "main@sha1:2"},
			reconcile.Waiting{On: "a pod"}, done} {
			r.run(ctx, out)
		}
		revision := func(r string) map[string]string { return map[string]string{"apps.ksctl.com/revision": r} }
		Expect(r.events.got).To(Equal([]event{
			{corev1.EventTypeNormal, "ReconciliationSucceeded", "all well", revision("main@sha1:1")},
			{corev1.EventTypeWarning, "ReconciliationFailed", "boom", revision("main@sha1:2")},
			{corev1.EventTypeNormal, "Progressing", "a pod", map[string]string{}},
			{corev1.EventTypeNormal, "ReconciliationSucceeded", "all well", revision("main@sha1:1")},
		}))
	})
})

// unstructuredOf returns the object from the API server without conversion to a Go type.
func unstructuredOf(ctx context.Context, r *fixture) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: appsv1.GroupVersion.Group, Version: "v1",
		Kind: "KsctlInstall"})
	Expect(direct.Get(ctx, r.key, u)).To(Succeed())
	return u
}
