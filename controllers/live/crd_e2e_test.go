package live_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
)

var (
	crds   = mapping("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", meta.RESTScopeRoot)
	shops  = mapping("live.example.com/v1", "Shop", "shops", meta.RESTScopeNamespace)
	shopUp = "{apiVersion: live.example.com/v1, kind: Shop, metadata: {name: a, annotations: {" + live.ReadyExprAnnotation + ": \"status.phase == 'Open'\"}}, spec: {shelves: [{name: top, size: 1}], notes: [x]}}"
)

const shopCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.live.example.com}
spec:
  group: live.example.com
  scope: Namespaced
  names: {kind: Shop, plural: shops, singular: shop, listKind: ShopList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              shelves:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, size: {type: number}}}
              notes: {type: array, items: {type: string}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

var _ = Describe("An index of a custom resource", func() {
	var namespace, owner string

	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = plane.Namespace(ctx, "crd")
		Expect(err).NotTo(HaveOccurred())
		owner = ownerKey(namespace)
	})

	remove := func(ctx context.Context) {
		GinkgoHelper()
		Expect(resource(crds, "").Delete(ctx, "shops.live.example.com", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() error {
			_, err := resource(crds, "").Get(ctx, "shops.live.example.com", metav1.GetOptions{})
			return err
		}).Should(MatchError(ContainSubstring("not found")), "the definition is gone")
	}

	// applySoon applies to a kind that the API server may still be getting ready.
	applySoon := func(ctx context.Context, u *unstructured.Unstructured) (out *unstructured.Unstructured) {
		GinkgoHelper()
		Eventually(func() (err error) {
			out, err = resource(shops, namespace).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: live.FieldManager})
			return err
		}).Should(Succeed(), "the kind takes objects")
		return out
	}

	It("waits for the definition, and for it to come back", Serial, func(ctx SpecContext) {
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{shops})
		Eventually(reason(ix, shops)).Should(Equal(live.NotServed), "there is no definition")
		Eventually(told.count).WithArguments(owner).Should(Equal(1), "the owner was told")

		By("making the definition")
		Expect(plane.ApplyYAML(ctx, []byte(shopCRD))).To(Succeed())
		ix.Wake(shops.GroupVersionKind.GroupKind())
		synced(ix, shops)
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">=", 2), "the owner was told")
		u := marked(namespace, parse(shopUp))
		made := applySoon(ctx, u)
		Eventually(known(ix, refOf(u))).Should(And(HaveField("Ready", live.InProgress), HaveField("Message", ContainSubstring("status"))), "the expression judges it")

		By("making it ready")
		patch(ctx, shops, namespace, "a", "status: {phase: Open}", "status")
		Eventually(known(ix, refOf(u))).Should(HaveField("Ready", live.Current), "the expression is true")

		By("changing what is ours and what is not")
		baseline, err := live.Project(made)
		Expect(err).NotTo(HaveOccurred())
		theirs := patch(ctx, shops, namespace, "a", "[{op: add, path: /spec/shelves/0, value: {name: low, size: 2}}]")
		Eventually(known(ix, refOf(u))).Should(HaveField("ResourceVersion", theirs.GetResourceVersion()), "the change is known")
		Expect(live.Drifted(baseline.Owned, known(ix, refOf(u))().Owned)).To(BeFalse(), "another shelf is theirs")
		patch(ctx, shops, namespace, "a", "[{op: replace, path: /spec/shelves/1/size, value: 1.5}]")
		Eventually(func() bool { return live.Drifted(baseline.Owned, known(ix, refOf(u))().Owned) }).Should(BeTrue(), "our shelf was changed")

		By("deleting the definition")
		remove(ctx)
		Eventually(reason(ix, shops)).Should(Equal(live.NotServed), "the kind is not served")

		By("making it again")
		Expect(plane.ApplyYAML(ctx, []byte(shopCRD))).To(Succeed())
		ix.Wake(shops.GroupVersionKind.GroupKind())
		synced(ix, shops)
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "its objects went with the definition")
		again := applySoon(ctx, u)
		Expect(again.GetUID()).NotTo(Equal(made.GetUID()))
		Eventually(known(ix, refOf(u))).Should(HaveField("UID", again.GetUID()), "the new object is known")
		remove(ctx)
	})
})
