package kind_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
)

// wholeStack serves the kind Whole. Each object of it has an object of the kind Part.
const wholeStack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: whole}
spec:
  version: 1.0.0
  parameters: {schema: {properties: {port: {type: integer}}}}
  components:
  - name: main
    manifests: [part.yaml]
    fields: [{target: {kind: Part}, path: spec.port, value: stack.port, create: true}]
  serves:
    group: shops.example.com
    kind: Whole
    versions: [{name: v1alpha1}]
    schema: {type: object, properties: {port: {type: integer, default: 80}}}
    install:
      retryInterval: 1s
      components: [{name: main, namePrefix: {expr: self.metadata.name + '-'}}]
      parameters: {port: {expr: self.spec.port}}
`

const part = `apiVersion: shops.example.com/v1alpha1
kind: Part
metadata: {name: part}
spec: {greeting: part}
`

const whole = `---
apiVersion: shops.example.com/v1alpha1
kind: Whole
metadata: {name: whole}
`

// publishComposition publishes the stacks of both kinds. more are objects in the stack of Part.
func publishComposition(ctx context.Context, platform, revision, more string) {
	GinkgoHelper()
	change := strings.NewReplacer("KIND", "Part")
	Expect(h.PublishSource(ctx, platform, "fleet", revision, artifacts.Files(map[string]string{
		"stacks/shop/stack.yaml":  change.Replace(shopStack + strings.TrimPrefix(shopServes, "\n")),
		"stacks/shop/main.yaml":   shopObjects + more,
		"stacks/whole/stack.yaml": wholeStack, "stacks/whole/part.yaml": part}))).To(Succeed())
}

var _ = Describe("An object of a published kind in the stack of another kind", func() {
	It("counts for its readiness, is removed with it, and closes no cycle", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishComposition(ctx, platform, "main@sha1:1", "")
		parts := newKind(ctx, platform, "Part")
		wholes := newKind(ctx, platform, "Whole", func(k *appsv1.KsctlKind) { k.Spec.Stack = "whole" })
		kindReady(ctx, parts, "main@sha1:1")
		kindReady(ctx, wholes, "main@sha1:1")

		a := newShop(ctx, "Whole", tenant, "a", map[string]any{"port": int64(70000)}) // invalid for a Service
		inner := shop("Part", tenant, "a-part", nil)
		Eventually(ctx, get).WithArguments(inner).WithTimeout(soon).Should(Succeed())
		shopBecomes(ctx, inner, "False ReconciliationFailed")
		shopBecomes(ctx, a, "Unknown Progressing: component \"main\": Part "+tenant+"/a-part is InProgress: ")
		change(ctx, a, `{"spec": {"port": 81}}`)
		shopBecomes(ctx, a, "True ")
		shopBecomes(ctx, inner, "True ")
		Expect(get(ctx, service(tenant, "a-part-web"))).To(Succeed())

		By("a stack of the part with an object of the whole")
		publishComposition(ctx, platform, "main@sha1:2", whole)
		shopBecomes(ctx, inner, "False InvalidObject: ")
		Expect(condition(inner, "Ready")).To(ContainSubstring("the kinds would contain each other without end: " +
			"Part.shops.example.com → Whole.shops.example.com → Part.shops.example.com"))
		Expect(controller.Stop()).To(Succeed())
		controller.Start()
		publishComposition(ctx, platform, "main@sha1:3", strings.Replace(whole, "name: whole", "name: other", 1))
		kindReady(ctx, parts, "main@sha1:3")
		shopBecomes(ctx, inner, "False InvalidObject: ")
		Expect(condition(inner, "Ready")).To(ContainSubstring("without end"))

		By("removing the whole")
		publishComposition(ctx, platform, "main@sha1:4", "")
		shopBecomes(ctx, a, "True ")
		remove(ctx, a)
		gone(ctx, a)
		gone(ctx, inner)
		gone(ctx, service(tenant, "a-part-web"))
	})
})
