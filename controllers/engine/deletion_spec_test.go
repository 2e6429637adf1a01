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
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// meddler changes the ConfigMap a between the plan and each of the first deletes: as
// when a watch has not told yet.
type meddler struct {
	namespace      string
	patch          func(n int) string
	times, deletes int
}

func (m *meddler) boundary(ctx context.Context, kind engine.WriteKind, after bool) error {
	if kind != engine.WriteDelete || after {
		return nil
	}
	if m.deletes++; m.deletes > m.times {
		return nil
	}
	return meddle(ctx, m.namespace, m.patch(m.deletes))
}

func meddle(ctx context.Context, namespace, patch string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	return plane.Client().Patch(ctx, cm, client.RawPatch(types.MergePatchType, []byte(patch)))
}

var _ = Describe("An object that changes while it is deleted", func() {
	by := func(patch string) func(int) string { return func(int) string { return patch } }
	others := func(n int) string { return fmt.Sprintf(`{"metadata":{"annotations":{"seen":"%d"}}}`, n) }
	const (
		protect   = `{"metadata":{"annotations":{"` + live.PreventDeletionAnnotation + `":"true"}}}`
		unprotect = `{"metadata":{"annotations":{"` + live.PreventDeletionAnnotation + `":null}}}`
		disown    = `{"metadata":{"annotations":{"` + live.MarkAnnotation + `":null}}}`
	)
	var m *meddler
	var p *process
	var o *owner
	// begin installs a, and asks once for its removal.
	begin := func(ctx context.Context, meddling *meddler) *engine.Report {
		GinkgoHelper()
		m = meddling
		m.namespace = namespaceFor(ctx)
		o = newOwner(ctx, m.namespace, "o")
		p = start(m.namespace, engine.Options{Boundary: m.boundary})
		p.settle(ctx, o, []stacks.RenderedComponent{render("one", configMap(m.namespace, "a", "1"))})
		rep, err := p.engine.Teardown(ctx, p.target, p.client, o, retry)
		Expect(err).NotTo(HaveOccurred())
		return rep
	}

	It("stays while somebody protects it", func(ctx SpecContext) {
		rep := begin(ctx, &meddler{patch: by(protect), times: 1})
		Expect(rep.Plan.Waits).To(ConsistOf(HaveField("Reason", engine.Protected)))
		Expect(m.deletes).To(Equal(1))
		Expect(ours(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
		Expect(meddle(ctx, m.namespace, unprotect)).To(Succeed())
		p.teardown(ctx, o)
		Expect(ours(ctx, m.namespace)).To(BeEmpty())
	})

	It("is left to who took our mark off", func(ctx SpecContext) {
		begin(ctx, &meddler{patch: by(disown), times: 1})
		Expect(o.inv.Len()).To(BeZero())
		Expect(m.deletes).To(Equal(1))
		Expect(ours(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
	})

	It("goes in the same pass when nothing that counts has changed", func(ctx SpecContext) {
		begin(ctx, &meddler{patch: others, times: 3})
		Expect(o.inv.Len()).To(BeZero())
		Expect(m.deletes).To(Equal(4))
		Expect(ours(ctx, m.namespace)).To(BeEmpty())
	})

	It("is left alone for a while when it changes each time", func(ctx SpecContext) {
		rep := begin(ctx, &meddler{patch: others, times: 1000})
		Expect(rep.Errors).To(HaveLen(1))
		Expect(rep.RetryAt).NotTo(BeZero())
		Expect(m.deletes).To(Equal(10), "two rounds of a few tries")
		Expect(ours(ctx, m.namespace)).To(ConsistOf(HaveField("DeletionTimestamp", BeNil())))
		m.times = 0
		p.teardown(ctx, o)
		Expect(ours(ctx, m.namespace)).To(BeEmpty())
	})
})
