package live_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
)

var (
	crds = mapping("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions",
		meta.RESTScopeRoot)
	shops    = mapping("live.example.com/v1", "Shop", "shops", meta.RESTScopeNamespace)
	shopYAML = "{apiVersion: live.example.com/v1, kind: Shop, metadata: {name: a, annotations: {" +
		live.ReadyExprAnnotation +
		": \"status.phase == 'Open'\"}}, spec: {shelves: [{name: top, size: 1}], notes: [x]}}"
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
		}).Should(MatchError(ContainSubstring("not found")), "the CRD is gone")
	}

	// applySoon retries an apply until the API server serves the kind.
	applySoon := func(ctx context.Context, u *unstructured.Unstructured) (out *unstructured.Unstructured) {
		GinkgoHelper()
		Eventually(func() (err error) {
			out, err = resource(shops, namespace).
				Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: live.FieldManager})
			return err
		}).Should(Succeed(), "the API server serves the kind")
		return out
	}

	It("ends the watch with the kind when no owner uses it, and starts it again", Serial, func(ctx SpecContext) {
		cfg, requests := withFaultProxy(plane.Config())
		ix, notified := startIndex(cfg, live.Options{OwnerID: installation(namespace), IdleGracePeriod: time.Hour})
		listsAndWatches := func() int {
			return requests.count(func(r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, "/shops") && !isGet(r)
			})
		}
		endsWithKind := func(what string) {
			GinkgoHelper()
			remove(ctx)
			Eventually(func() int { return ix.Stats().Watches }).Should(BeZero(), "the watch ended: "+what)
			n := listsAndWatches()
			Consistently(listsAndWatches, "1s").Should(Equal(n), "no more requests: "+what)
			Expect(ix.Stats().Objects).To(BeZero())
		}
		begin := func(watches int) {
			GinkgoHelper()
			Expect(plane.ApplyYAML(ctx, []byte(shopCRD))).To(Succeed())
			applySoon(ctx, marked(namespace, parse(shopYAML)))
			ix.SetOwnerKinds(owner, []*meta.RESTMapping{shops})
			expectSynced(ix, shops)
			Eventually(requests.openWatches).Should(Equal(watches), "the watch is open")
		}

		begin(1)
		ix.SetOwnerKinds(owner, nil)
		n := listsAndWatches()
		endsWithKind("the owner released the kind before")
		Expect(listsAndWatches()).To(Equal(n), "not even one request to a kind that is gone")

		By("creating the CRD again")
		begin(2)
		n = notified.count(owner)
		stop := ix.Subscribe(func(string) { // as the engine does after the discovery
			if reason(ix, shops)() == live.NotServed {
				ix.SetOwnerKinds(owner, nil)
			}
		})
		defer stop()
		endsWithKind("the owner releases the kind when it is notified")
		Expect(notified.count(owner)).To(BeNumerically(">", n))
	})

	It("syncs when the CRD is created, and again after it was deleted and "+
		"created again", Serial, func(ctx SpecContext) {
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{shops})
		Eventually(reason(ix, shops)).Should(Equal(live.NotServed), "the CRD does not exist")
		Eventually(notified.count).WithArguments(owner).Should(Equal(1), "the owner was notified")

		By("creating the CRD")
		Expect(plane.ApplyYAML(ctx, []byte(shopCRD))).To(Succeed())
		ix.Wake(shops.GroupVersionKind.GroupKind())
		expectSynced(ix, shops)
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">=", 2), "the owner was notified")
		u := marked(namespace, parse(shopYAML))
		made := applySoon(ctx, u)
		Eventually(getObject(ix, refOf(u))).
			Should(And(HaveField("Readiness", live.InProgress), HaveField("Message", ContainSubstring("status"))),
				"the expression is evaluated")

		By("making the object ready")
		patch(ctx, shops, namespace, "a", "status: {phase: Open}", "status")
		Eventually(getObject(ix, refOf(u))).Should(HaveField("Readiness", live.Current), "the expression is true")

		By("changing fields of others and of ours")
		baseline, err := live.Project(made)
		Expect(err).NotTo(HaveOccurred())
		theirs := patch(ctx, shops, namespace, "a", "[{op: add, path: /spec/shelves/0, value: {name: low, size: 2}}]")
		Eventually(getObject(ix, refOf(u))).Should(HaveField("ResourceVersion", theirs.GetResourceVersion()),
			"the change is indexed")
		Expect(live.Drifted(baseline.OwnedHash, getObject(ix, refOf(u))().OwnedHash)).
			To(BeFalse(), "a list item of another manager is no drift")
		patch(ctx, shops, namespace, "a", "[{op: replace, path: /spec/shelves/1/size, value: 1.5}]")
		Eventually(func() bool { return live.Drifted(baseline.OwnedHash, getObject(ix, refOf(u))().OwnedHash) }).
			Should(BeTrue(), "a changed list item of ours is drift")

		By("deleting the CRD")
		remove(ctx)
		Eventually(reason(ix, shops)).Should(Equal(live.NotServed), "the kind is not served")

		By("creating the CRD again")
		Expect(plane.ApplyYAML(ctx, []byte(shopCRD))).To(Succeed())
		ix.Wake(shops.GroupVersionKind.GroupKind())
		expectSynced(ix, shops)
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "its objects were deleted with the CRD")
		again := applySoon(ctx, u)
		Expect(again.GetUID()).NotTo(Equal(made.GetUID()))
		Eventually(getObject(ix, refOf(u))).Should(HaveField("UID", again.GetUID()), "the new object is indexed")
		remove(ctx)
	})
})
