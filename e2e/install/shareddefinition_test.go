package install_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// definitionObject returns the CustomResourceDefinition of a group.
func definitionObject(group string) *unstructured.Unstructured {
	crd := widgetObject(group, "", "widgets."+group)
	crd.SetGroupVersionKind(crdKind)
	return crd
}

// withVersion2 serves v2 in place of v1, which stays the stored version.
func withVersion2(definition string) string {
	return strings.Replace(definition, "    served: true\n", "    served: false\n", 1) +
		"  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"
}

var _ = Describe("A CustomResourceDefinition that two installs have", suite.Safety, func() {
	It("is shared: only its owner writes it, the other is refused without a version that it needs, and receives the "+
		"definition when the owner is deleted", func(ctx SpecContext) {
		a, b := namespaceFor(ctx), namespaceFor(ctx)
		group := deleteDefinition(a + ".example.com")
		ours := definition(group, "Namespaced")
		stack(ctx, a, "main@sha1:1", ours)
		owner := newInstall(ctx, a, "owner", hourly)
		atRevision(ctx, owner, "main@sha1:1")
		crd := definitionObject(group)
		mark := auditMark(ctx)

		By("a second install with another schema, in another namespace and from another source")
		theirs := strings.Replace(ours, "x-kubernetes-preserve-unknown-fields: true",
			"properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}", 1)
		stack(ctx, b, "main@sha1:1", theirs)
		user := newInstall(ctx, b, "user", hourly)
		atRevision(ctx, user, "main@sha1:1")
		Expect(user.Status.SharedDefinitions).To(Equal([]string{"widgets." + group}))
		Expect(user.Status.Inventory).To(BeNil(), "the definition is not in its inventory")
		Expect(user.Status.Warnings).To(ContainElement(And(ContainSubstring("KsctlInstall "+a+"/owner"),
			ContainSubstring("/spec/versions/[name=v1]/schema/openAPIV3Schema/properties"))))
		requestReconcile(ctx, user, "again")
		requests := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(b)),
			cluster.Resource("customresourcedefinitions"))
		Expect(requests).To(HaveLen(1), "one GET compares the schemas, also for two reconciles")
		Expect(requests[0].Verb).To(Equal("get"))

		By("drift, which its owner corrects")
		Expect(plane.Client().Patch(ctx, definitionObject(group), client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"ksctl.com/owner-id":"x"}}}`)))).To(Succeed())
		Eventually(ctx, func() string {
			Expect(get(ctx, crd)).To(Succeed())
			return crd.GetLabels()[live.OwnerLabel]
		}, soon, "20ms").ShouldNot(Equal("x"), "the owner corrects the label")
		expectOwnedBy(crd, owner)

		By("deleting it by hand")
		mark = auditMark(ctx)
		before := crd.GetUID()
		Expect(plane.Client().Delete(ctx, definitionObject(group))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, crd)).To(Succeed())
			g.Expect(crd.GetUID()).NotTo(Equal(before))
		}, soon, "20ms").Should(Succeed(), "it is created again")
		expectOwnedBy(crd, owner)
		Eventually(ctx, func() []string {
			Expect(get(ctx, user)).To(Succeed())
			return user.Status.Warnings
		}, soon, "20ms").Should(ContainElement(ContainSubstring(a + "/owner")))
		becomes(ctx, user, "True", "")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(b)), cluster.Verb("create", "patch"))).
			To(BeEmpty(), "only its owner creates it again")
		uid := crd.GetUID()
		stack(ctx, b, "main@sha1:2", theirs, widget(group, "first"))
		atRevision(ctx, user, "main@sha1:2")

		By("a version of the owner that no longer serves what the other needs")
		stack(ctx, a, "main@sha1:2", withVersion2(ours))
		reports(ctx, user, "False", "OwnedByAnother", "KsctlInstall "+a+"/owner", "KsctlInstall "+b+"/user",
			"version v1 (it serves v2)")
		atRevision(ctx, owner, "main@sha1:2")
		stack(ctx, a, "main@sha1:3", strings.Replace(withVersion2(ours), "served: false", "served: true", 1))
		atRevision(ctx, owner, "main@sha1:3")
		becomes(ctx, user, "True", "")
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.GetUID()).To(Equal(uid))

		By("deleting the owner, and then the other")
		deleteAndWait(ctx, owner)
		Eventually(ctx, func() []string {
			Expect(get(ctx, user)).To(Succeed())
			return user.Status.SharedDefinitions
		}, soon, "20ms").Should(BeEmpty(), "it is in the inventory of the other install")
		becomes(ctx, user, "True", "")
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.GetUID()).To(Equal(uid), "it was handed over, not deleted")
		expectOwnedBy(crd, user)
		Expect(absent(ctx, widgetObject(group, b, "first"))).To(BeFalse())
		deleteAndWait(ctx, user)
		Expect(absent(ctx, definitionObject(group))).To(BeTrue())
	})

	It("stays with its owner while another install uses it that may not patch it", func(ctx SpecContext) {
		a, b := namespaceFor(ctx), configMapsOnlyNamespace(ctx)
		group := deleteDefinition(a + ".example.com")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: b}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{crdKind.Group}, Resources: []string{"customresourcedefinitions"},
				Verbs: []string{"get"}}}}
		Expect(plane.Client().Create(ctx, role)).To(Succeed())
		Expect(plane.Client().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: b},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: b, Name: "deployer"}},
		})).To(Succeed())
		Expect(plane.AwaitPermission(ctx, tenant(b), authorizationv1.ResourceAttributes{Verb: "get",
			Group: crdKind.Group, Resource: "customresourcedefinitions"})).To(Succeed())
		ours := definition(group, "Namespaced")
		stack(ctx, a, "main@sha1:1", ours, configMap("a", "1"))
		owner := newInstall(ctx, a, "owner", hourly)
		atRevision(ctx, owner, "main@sha1:1")
		stack(ctx, b, "main@sha1:1", ours, configMap("b", "1"))
		user := newInstall(ctx, b, "user", hourly)
		atRevision(ctx, user, "main@sha1:1")

		stack(ctx, a, "main@sha1:2", configMap("a", "1"))
		atRevision(ctx, owner, "main@sha1:2")
		Expect(ready(owner).Message).To(And(ContainSubstring("KsctlInstall "+b+"/user uses it"),
			ContainSubstring("may not patch it")))

		By("deleting the owner")
		Expect(plane.Client().Delete(ctx, owner)).To(Succeed())
		reports(ctx, owner, "Unknown", "Removing", "1 objects are left to remove", "KsctlInstall "+b+"/user uses it")
		Expect(absent(ctx, aConfigMap(a, "a"))).To(BeTrue(), "everything else is removed")
		Expect(absent(ctx, definitionObject(group))).To(BeFalse())

		By("deleting the other, but not one that is refused")
		c := namespaceFor(ctx)
		stack(ctx, c, "main@sha1:1", definition(group, "Cluster"))
		reports(ctx, newInstall(ctx, c, "refused", hourly), "False", "OwnedByAnother", `scope "Cluster"`)
		deleteAndWait(ctx, user)
		deleteAndWait(ctx, owner)
		Eventually(ctx, func(g Gomega) {
			crd := definitionObject(group)
			g.Expect(get(ctx, crd)).To(Succeed())
			g.Expect(crd.Object["spec"]).To(HaveKeyWithValue("scope", "Cluster"))
		}, soon, "20ms").Should(Succeed(), "it was deleted, and the refused install creates its own")
	})
})
