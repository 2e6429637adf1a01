package engine_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// concurrentWriter changes the ConfigMap a between the plan and each of the first deletes, like a
// change that the index has not observed yet.
type concurrentWriter struct {
	namespace      string
	patch          func(n int) string
	times, deletes int
}

func (m *concurrentWriter) boundary(ctx context.Context, kind engine.WriteKind, after bool) error {
	if kind != engine.WriteDelete || after {
		return nil
	}
	if m.deletes++; m.deletes > m.times {
		return nil
	}
	return patchConfigMap(ctx, m.namespace, m.patch(m.deletes))
}

// patchConfigMap patches the ConfigMap a.
func patchConfigMap(ctx context.Context, namespace, patch string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	return controlPlane.Client().Patch(ctx, cm, client.RawPatch(types.MergePatchType, []byte(patch)))
}

var _ = Describe("An object that changes between plan and delete", func() {
	by := func(patch string) func(int) string { return func(int) string { return patch } }
	others := func(n int) string { return fmt.Sprintf(`{"metadata":{"annotations":{"seen":"%d"}}}`, n) }
	const (
		protect   = `{"metadata":{"annotations":{"` + live.PreventDeletionAnnotation + `":"true"}}}`
		unprotect = `{"metadata":{"annotations":{"` + live.PreventDeletionAnnotation + `":null}}}`
		keep      = `{"metadata":{"annotations":{"` + live.HelmPolicyAnnotation + `":"keep"}}}`
		disown    = `{"metadata":{"annotations":{"` + live.MarkAnnotation + `":null}}}`
	)
	var m *concurrentWriter
	var p *process
	var o *owner
	// begin applies a, and starts its teardown.
	begin := func(ctx context.Context, meddling *concurrentWriter) *engine.Report {
		GinkgoHelper()
		m = meddling
		m.namespace = namespaceFor(ctx)
		o = newOwner(ctx, m.namespace, "o")
		p = startProcess(m.namespace, engine.Options{WriteHook: m.boundary})
		p.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("one", configMap(m.namespace, "a", "1"))})
		rep, err := p.engine.Teardown(ctx, p.pass(o))
		Expect(err).NotTo(HaveOccurred())
		return rep
	}

	It("is not deleted while an annotation forbids it", func(ctx SpecContext) {
		rep := begin(ctx, &concurrentWriter{patch: by(protect), times: 1})
		Expect(rep.Plan.Waits).To(ConsistOf(HaveField("Reason", plan.ReasonProtected)))
		Expect(m.deletes).To(Equal(1))
		Expect(labeledConfigMaps(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
		Expect(patchConfigMap(ctx, m.namespace, unprotect)).To(Succeed())
		p.teardown(ctx, o)
		Expect(labeledConfigMaps(ctx, m.namespace)).To(BeEmpty())
	})

	It("is released when it gets Helm's annotation to keep it", func(ctx SpecContext) {
		begin(ctx, &concurrentWriter{patch: by(keep), times: 1})
		Expect(o.inv.Len()).To(BeZero())
		Expect(m.deletes).To(Equal(1))
		Expect(labeledConfigMaps(ctx, m.namespace)).To(BeEmpty())
		Expect(controlPlane.Client().Get(ctx, types.NamespacedName{Namespace: m.namespace, Name: "a"},
			&corev1.ConfigMap{})).To(Succeed())
	})

	It("is left in the cluster when another client removes our mark", func(ctx SpecContext) {
		begin(ctx, &concurrentWriter{patch: by(disown), times: 1})
		Expect(o.inv.Len()).To(BeZero())
		Expect(m.deletes).To(Equal(1))
		Expect(labeledConfigMaps(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
	})

	It("is deleted in the same pass when the change does not affect the decision", func(ctx SpecContext) {
		begin(ctx, &concurrentWriter{patch: others, times: 3})
		Expect(o.inv.Len()).To(BeZero())
		Expect(m.deletes).To(Equal(4))
		Expect(labeledConfigMaps(ctx, m.namespace)).To(BeEmpty())
	})

	It("is backed off when it changes before every attempt", func(ctx SpecContext) {
		rep := begin(ctx, &concurrentWriter{patch: others, times: 1000})
		Expect(rep.Errors).To(HaveLen(1))
		Expect(rep.RetryAt).NotTo(BeZero())
		Expect(m.deletes).To(Equal(10), "two rounds of five attempts")
		Expect(labeledConfigMaps(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
		m.times = 0
		p.teardown(ctx, o)
		Expect(labeledConfigMaps(ctx, m.namespace)).To(BeEmpty())
	})
})
