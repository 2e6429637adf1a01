package flux_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var _ = Describe("Kinds of Flux and ours", func() {
	It("handle a reconcile request, but not while they are suspended", func(ctx SpecContext) {
		other := strings.NewReplacer("stack: app", "stack: other").Replace(installNamed("other"))
		files := content(map[string]string{"clusters/prod/install.yaml": installManifest,
			"clusters/other/install.yaml":   other,
			"stacks/other/stack.yaml":       strings.Replace(stack, "name: app", "name: other", 1),
			"stacks/other/base/base.yaml":   configMap("other-base", "1"),
			"stacks/other/extra/extra.yaml": configMap("other-extra", "1")})
		w := newFixture(ctx, files)
		// The objects of the folder other are never suspended. When they have handled a request,
		// their controllers have observed all earlier changes.
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		witnesses := []*unstructured.Unstructured{w.sync(ctx, "other", "./clusters/other", ""),
			w.object("KsctlInstall", "other")}
		first := w.head(ctx)
		readyAt(ctx, k, first)
		readyAt(ctx, witnesses[0], first)

		for _, u := range []*unstructured.Unstructured{w.object("GitRepository", "fleet"), k, in} {
			at := requestReconcile(ctx, u)
			Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, u).Should(Equal(at), u.GetKind())
			readyAt(ctx, u, first)
		}

		By("suspending them")
		asked := map[*unstructured.Unstructured]string{}
		for _, u := range []*unstructured.Unstructured{k, in} {
			patch(ctx, u, `{"spec":{"suspend":true}}`)
		}
		for _, u := range witnesses {
			at := requestReconcile(ctx, u)
			Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, u).Should(Equal(at), u.GetKind())
		}
		for name := range files {
			files[name] = strings.ReplaceAll(files[name], `value: "1"`, `value: "2"`)
		}
		for _, u := range []*unstructured.Unstructured{k, in} {
			asked[u] = requestReconcile(ctx, u)
		}
		second := w.commit(ctx, files)
		for _, u := range witnesses {
			readyAt(ctx, u, second)
		}
		for _, u := range []*unstructured.Unstructured{k, in} {
			Expect(readySummary(ctx, u)).NotTo(ContainSubstring(second), u.GetKind())
		}
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("1"))
		Expect(value(ctx, w.ns, "other-base", "value")).To(Equal("2"))

		By("resuming them")
		for _, u := range []*unstructured.Unstructured{in, k} {
			patch(ctx, u, `{"spec":{"suspend":false}}`)
			readyAt(ctx, u, second)
			Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, u).Should(Equal(asked[u]), u.GetKind())
		}
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"))
	}, SpecTimeout(15*time.Minute))
})
