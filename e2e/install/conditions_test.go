package install_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

const revisionAnnotation = "apps.ksctl.com/revision"

// raw returns an install as the API server serves it.
func raw(ctx context.Context, ns, name string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(appsv1.GroupVersion.WithKind("KsctlInstall"))
	Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, u)).To(Succeed())
	return u
}

// kstatusOf returns the status that kstatus, and thus kubectl wait and Flux, computes for an
// install.
func kstatusOf(ctx context.Context, in *appsv1.KsctlInstall) status.Status {
	GinkgoHelper()
	res, err := status.Compute(raw(ctx, in.Namespace, in.Name))
	Expect(err).NotTo(HaveOccurred())
	return res.Status
}

// outcomes returns the outcome events of an install, each with its count.
func outcomes(ctx context.Context, in *appsv1.KsctlInstall) (list []string) {
	GinkgoHelper()
	for _, e := range slices.DeleteFunc(eventsOf(ctx, in), isStartupEvent) {
		list = append(list,
			fmt.Sprintf("%s %s %s ×%d", e.Type, e.Reason, e.Annotations[revisionAnnotation], max(e.Count, 1)))
	}
	return list
}

var _ = Describe("Conditions", func() {
	It("of a suspended install do not change until it is resumed or deleted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		suspend(ctx, in)
		mark := auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "2")}))
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "a"))).To(Succeed())
		annotate(ctx, in, appsv1.RequestedAtAnnotation, "while suspended")
		Consistently(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(in.Status.LastAttemptedRevision).To(Equal("main@sha1:1"))
			g.Expect(in.Status.LastHandledReconcileAt).To(BeEmpty())
			g.Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
		}, "1s").Should(Succeed(), "neither a revision, nor drift, nor a request is handled")
		Expect(requestsSince(ctx, mark, cluster.ByUser(controller()), cluster.InNamespace(ns), cluster.Write).
			Without(cluster.Resource("events"))).To(BeEmpty(), "an event from before may still be sent")

		commit(ctx, in, resume)
		atRevision(ctx, in, "main@sha1:2")
		Expect(in.Status.LastHandledReconcileAt).To(Equal("while suspended"))
		suspend(ctx, in)
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	It("answer any value of requestedAt with exactly one status write", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, eventsWithReason(ctx, in, "ReconciliationSucceeded"), soon).Should(HaveLen(1))
		awaitIdle(ctx)
		for _, when := range []string{time.Now().Format(time.RFC3339Nano), "yesterday", "\u202e{{ .Values }}"} {
			mark := auditMark(ctx)
			annotate(ctx, in, appsv1.RequestedAtAnnotation, when)
			Eventually(ctx, func() string { _ = get(ctx, in); return in.Status.LastHandledReconcileAt }, soon).
				Should(Equal(when))
			awaitIdle(ctx)
			all := requestsSince(ctx, mark, cluster.ByUser(controller()), cluster.InNamespace(ns)).
				Without(cluster.Watch)
			Expect(all).To(HaveLen(1), "the answer: %s", all)
			Expect(all[0]).
				To(And(HaveField("Resource", "ksctlinstalls"), HaveField("Subresource", "status"),
					HaveField("Verb", "patch")))
		}
		Expect(ready(in).Status).To(BeEquivalentTo("True"))
	})

	It("make kstatus compute InProgress, Failed, Current and Terminating", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		unseen := newInstall(ctx, ns, "unseen", forController[*appsv1.KsctlInstall]("nobody"))
		Expect(unseen.Status.ObservedGeneration).To(BeEquivalentTo(-1))
		Expect(kstatusOf(ctx, unseen)).To(Equal(status.InProgressStatus), "no controller has observed it")

		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "SourceNotFound")
		Expect(kstatusOf(ctx, in)).To(Equal(status.InProgressStatus), "it is retried")
		publish(ctx, ns, "src", "main@sha1:1", tree("spec: {version: one}\n", nil))
		reports(ctx, in, "False", "InvalidStack")
		Expect(kstatusOf(ctx, in)).To(Equal(status.FailedStatus), "only a change of the spec or the source helps")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/d.yaml": deployment("slow", cluster.FateNeverReady)}))
		reports(ctx, in, "Unknown", "Progressing")
		Expect(kstatusOf(ctx, in)).To(Equal(status.InProgressStatus))
		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:2")
		Expect(kstatusOf(ctx, in)).To(Equal(status.CurrentStatus))
		Expect(in.Status.Conditions).To(HaveLen(1), "Reconciling and Stalled exist only while they are true")

		Expect(plane.Client().
			Patch(ctx, in, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":["ksctl.com/teardown","example.com/held"]}}`)))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() []string {
			_ = get(ctx, in)
			return in.Finalizers
		}, soon).Should(Equal([]string{"example.com/held"}), "only our finalizer is removed")
		Expect(kstatusOf(ctx, in)).To(Equal(status.TerminatingStatus))
		Expect(plane.Client().
			Patch(ctx, in, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	})

	It("are written without a change of the committed spec and metadata", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		committed := fmt.Sprintf(
			`{"apiVersion": "apps.ksctl.com/v1", "kind": "KsctlInstall", "metadata": {"name": "i", "namespace": %q}, "spec": {
			"interval": "10m", "retryInterval": "1.5m", "timeout": "90s", "stack": "app", "path": "./stacks/", "serviceAccountName": "deployer",
			"sourceRef": {"kind": "KsctlSource", "name": "src"}, "components": [{"name": "main", "override": {}}], "drift": {}}}`, ns)
		Expect(plane.ApplyYAML(ctx, []byte(committed))).To(Succeed())
		in := &appsv1.KsctlInstall{ObjectMeta: objectMeta(ns, "i")}
		atRevision(ctx, in, "main@sha1:1")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "2")}))
		atRevision(ctx, in, "main@sha1:2")

		u := raw(ctx, ns, "i")
		var want map[string]any
		Expect(json.Unmarshal([]byte(committed), &want)).To(Succeed())
		Expect(u.Object["spec"]).To(Equal(want["spec"]), "also fields that have a default or another spelling")
		Expect(in.Generation).To(BeEquivalentTo(1))
		Expect(u.GetAnnotations()).To(BeEmpty())
		Expect(u.GetLabels()).To(BeEmpty())
		for _, m := range u.GetManagedFields() {
			if m.Manager != cluster.FieldManager {
				var fields map[string]any
				Expect(json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields)).To(Succeed())
				Expect(fields).NotTo(HaveKey("f:spec"), "%s of %s", m.Operation, m.Manager)
			}
		}
		deleteAndWait(ctx, in)
	})

	It("come with one event per outcome, which has the revision", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		want := []string{"Normal ReconciliationSucceeded main@sha1:1 ×1"}
		Eventually(ctx, func() []string { return outcomes(ctx, in) }, soon).Should(Equal(want))
		for i := range 3 {
			annotate(ctx, in, appsv1.RequestedAtAnnotation, fmt.Sprint(i))
			Eventually(ctx, func() string { _ = get(ctx, in); return in.Status.LastHandledReconcileAt }, soon).
				Should(Equal(fmt.Sprint(i)))
		}
		publish(ctx, ns, "src", "main@sha1:2", tree("spec: {version: one}\n", nil))
		reports(ctx, in, "False", "InvalidStack")
		want = append(want, "Warning InvalidStack main@sha1:2 ×1")
		Eventually(ctx, func() []string { return outcomes(ctx, in) }, soon).Should(ConsistOf(want))
		publish(ctx, ns, "src", "main@sha1:3",
			tree(components("main"),
				map[string]string{"main/a.yaml": configMap("a", "1"), "main/d.yaml": deployment("d", "")}))
		atRevision(ctx, in, "main@sha1:3")
		want = append(want, "Normal ReconciliationSucceeded main@sha1:3 ×1")
		Eventually(ctx, func() []string { return outcomes(ctx, in) }, soon).Should(ConsistOf(want))
		Consistently(ctx, func() []string {
			return outcomes(ctx, in)
		}, "500ms").Should(ConsistOf(want), "a reconcile without a change sends no event")
		for _, e := range eventsOf(ctx, in) {
			Expect(e.Source.Component + e.ReportingController).NotTo(BeEmpty())
			Expect(e.InvolvedObject).
				To(Equal(corev1.ObjectReference{APIVersion: "apps.ksctl.com/v1", Kind: "KsctlInstall", Namespace: ns,
					Name: "i", UID: in.UID, ResourceVersion: e.InvolvedObject.ResourceVersion}))
		}
	})
})

// awaitIdle waits until the controller stops reconciling.
func awaitIdle(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		at := reconcileCount()
		g.Consistently(ctx, reconcileCount, "300ms", "50ms").Should(Equal(at))
	}, soon).Should(Succeed(), "the controller becomes idle")
}

var _ = Describe("A status with a revision", func() {
	It("has the components of that revision in every version that a watch delivers", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(components("one"), map[string]string{"one/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		versions, err := plane.Client().Watch(ctx, &appsv1.KsctlInstallList{}, client.InNamespace(ns),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: in.ResourceVersion}})
		Expect(err).NotTo(HaveOccurred())
		defer versions.Stop()
		publish(ctx, ns, "src", "main@sha1:2",
			tree(components("one", "two"),
				map[string]string{"one/a.yaml": configMap("a", "2"), "two/b.yaml": configMap("b", "2")}))
		seen := 0
		for done := false; !done; seen++ {
			event := <-versions.ResultChan()
			v, ok := event.Object.(*appsv1.KsctlInstall)
			Expect(ok).To(BeTrue(), "%v", event.Object)
			Expect(v.Status.LastAttemptedRevision).To(Equal("main@sha1:2"))
			Expect(v.Status.Components).To(ConsistOf(HaveField("Name", "one"), HaveField("Name", "two")),
				"version %d: %s", seen, ready(v).Message)
			done = v.Status.LastAppliedRevision == "main@sha1:2"
		}
		Expect(seen).To(BeNumerically(">", 1), "one version with the intent and one with the outcome")
	}, SpecTimeout(15*time.Minute))
})

var _ = DescribeTable("Intervals out of bounds are rejected at admission", func(ctx SpecContext, field, value string) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{field: value, "stack": "app",
		"sourceRef": map[string]any{"kind": "KsctlSource", "name": "src"}}}}
	u.SetGroupVersionKind(appsv1.GroupVersion.WithKind("KsctlInstall"))
	u.SetNamespace("default")
	u.SetName("absurd")
	err := plane.Client().Create(ctx, u, &client.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(ContainSubstring(field)))
	u.Object["spec"].(map[string]any)[field] = "1m"
	Expect(plane.Client().Create(ctx, u, &client.CreateOptions{DryRun: []string{metav1.DryRunAll}})).To(Succeed())
},
	Entry("zero", "interval", "0s"), Entry("negative", "interval", "-1m"), Entry("too short", "interval", "1ms"),
	Entry("too long", "interval", "87600h"),
	Entry("an overflow of a duration", "interval", "99999999999h"), Entry("not a duration", "interval", "soon"),
	Entry("a number", "interval", "60"), Entry("days", "interval", "1d"),
	Entry("empty", "interval", ""), Entry("zero for a retry", "retryInterval", "0s"),
	Entry("negative for a retry", "retryInterval", "-5s"), Entry("too short for a retry", "retryInterval", "10ms"),
	Entry("zero for a wave", "timeout", "0s"), Entry("negative for a wave", "timeout", "-5s"),
	Entry("too long for a wave", "timeout", "100000h"),
)

var _ = DescribeTable("Paths that drift.ignore must not contain are rejected at "+
	"admission", func(ctx SpecContext, path, says string) {
	in := &appsv1.KsctlInstall{Spec: appsv1.KsctlInstallSpec{Stack: "app",
		SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"},
		Drift:     &appsv1.Drift{Ignore: []appsv1.IgnoreRule{{Paths: []string{path}}}}}}
	in.Namespace, in.Name = "default", "ignoring"
	err := plane.Client().Create(ctx, in, client.DryRunAll)
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(ContainSubstring(says)))
	in.Spec.Drift.Ignore[0].Paths = []string{"/metadata/annotations/x", "/spec/containers/0/image",
		"/spec/containers/*/image", "/spec/containers/[name=a~1b]/env/[name=]", "/spec/*"}
	Expect(plane.Client().Create(ctx, in, client.DryRunAll)).To(Succeed())
},
	Entry("the kind", "/kind", "cannot be ignored"), Entry("the name", "/metadata/name", "cannot be ignored"),
	Entry("all metadata", "/metadata", "cannot be ignored"),
	Entry("the whole object", "/", "paths"), Entry("not a JSON pointer", "spec.replicas", "paths"),
	Entry("a list item without a slash", "/spec/containers[name=main]/image", "a list item is"),
	Entry("a list item without a value", "/spec/containers/[main]/image", "a list item is"),
	Entry("a list item without an end", "/spec/containers/[name=main/image", "a list item is"),
)
