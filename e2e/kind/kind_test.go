package kind_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

func configMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func service(ns, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

var _ = Describe("A published kind", func() {
	It("installs, corrects, changes and removes the stack of each object", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishShop(ctx, platform, "Shop", "main@sha1:1")
		k := newKind(ctx, platform, "Shop")
		kindReady(ctx, k, "main@sha1:1")
		Expect(k.Status.CRD).To(Equal("shops." + group))
		Expect(k.Status.ServedVersions).To(Equal([]string{"v1alpha1"}))

		token := "kind-token-" + tenant
		scanner.AddSecret(token)
		By("creating two objects in one namespace, and an install of the same name")
		a := newShop(ctx, "Shop", tenant, "a", map[string]any{"greeting": `good "morning"`, "token": token})
		b := newShop(ctx, "Shop", tenant, "b", map[string]any{"greeting": "hi", "port": int64(81)})
		in := harness.NewInstall(tenant, "a")
		in.Spec.Stack = "shop"
		in.Spec.SourceRef = appsv1.SourceRef{Kind: "KsctlSource", Namespace: platform, Name: "fleet"}
		in.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"greeting": "x", "port": 80}`)}
		Expect(plane.Client().Create(ctx, in)).To(Succeed())
		shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:1")
		shopBecomes(ctx, b, "True ")
		Eventually(ctx, func() (string, error) {
			err := get(ctx, in)
			return string(harness.ReadyCondition(in).Status), err
		}, soon).Should(Equal("True"), "an install of the same stack has other objects")
		m := configMap(tenant, "a-web")
		Expect(get(ctx, m)).To(Succeed())
		Expect(m.Data).To(HaveKeyWithValue("greeting", `good "morning"`))
		Expect(m.Annotations[live.MarkAnnotation]).To(ContainSubstring("/Shop.shops.example.com/" + tenant + "/a|"))

		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "a-web"}}
		Expect(get(ctx, secret)).To(Succeed())
		Expect(string(secret.Data["token"])).To(Equal(token))
		Expect(secret.Annotations).To(HaveKeyWithValue(live.SensitiveAnnotation, "true"), "its hashes are keyed")

		By("showing the status that the stack describes")
		svc := service(tenant, "a-web")
		Expect(get(ctx, svc)).To(Succeed())
		Eventually(ctx, func() (map[string]any, error) {
			err := get(ctx, a)
			st, _, _ := unstructured.NestedMap(a.Object, "status")
			return st, err
		}, soon).Should(And(HaveKeyWithValue("url", "http://"+svc.Spec.ClusterIP), HaveKeyWithValue("port", int64(80)),
			Not(HaveKey("warnings"))))
		Expect(condition(a, "Available")).To(HavePrefix("True ReconciliationSucceeded"))
		Eventually(ctx, func() (appsv1.KindObjects, error) {
			err := get(ctx, k)
			return *k.Status.Objects, err
		}, soon).Should(Equal(appsv1.KindObjects{Total: 2, Ready: 2, Updated: 2}))

		By("correcting a deletion")
		uid := svc.UID
		remove(ctx, svc)
		Eventually(ctx, func() (bool, error) {
			err := get(ctx, svc)
			return svc.UID != uid && err == nil, nil
		}, soon).Should(BeTrue(), "the Service is created again")

		By("changing the object")
		change(ctx, a, `{"spec": {"port": 8080}}`)
		Eventually(ctx, func() (int32, error) {
			err := get(ctx, svc)
			return svc.Spec.Ports[0].Port, err
		}, soon).Should(BeEquivalentTo(8080))
		shopBecomes(ctx, a, "True ")

		By("changing the stack")
		publishShop(ctx, platform, "Shop", "main@sha1:2", "RELEASE", "2")
		kindReady(ctx, k, "main@sha1:2")
		shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:2")
		shopBecomes(ctx, b, "True ReconciliationSucceeded: Applied revision main@sha1:2")
		Expect(get(ctx, m)).To(Succeed())
		Expect(m.Data).To(HaveKeyWithValue("release", "2"))

		By("removing an object, while another one and the install stay")
		remove(ctx, a)
		gone(ctx, a)
		Expect(apierrors.IsNotFound(get(ctx, m))).To(BeTrue())
		Expect(get(ctx, configMap(tenant, "b-web"))).To(Succeed())
		Expect(get(ctx, configMap(tenant, "web"))).To(Succeed())
	})

	It("stays as long as it has objects, or is removed with them", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishShop(ctx, platform, "Stay", "main@sha1:1")
		k := newKind(ctx, platform, "Stay")
		kindReady(ctx, k, "main@sha1:1")
		a := newShop(ctx, "Stay", tenant, "a", map[string]any{"greeting": "x"})
		shopBecomes(ctx, a, "True ")

		By("deleting it with the policy Refuse")
		remove(ctx, k)
		Eventually(ctx, func() (string, error) {
			err := get(ctx, k)
			for _, c := range k.Status.Conditions {
				if c.Type == "Ready" {
					return c.Reason + ": " + c.Message, err
				}
			}
			return "", err
		}, soon).Should(HavePrefix("InUse: 1 objects of Stay.shops.example.com exist: " + tenant + "/a"))

		By("restarting the controller, and changing the object")
		Expect(controller.Stop()).To(Succeed())
		controller.Start()
		change(ctx, a, `{"spec": {"greeting": "y"}}`)
		shopBecomes(ctx, a, "True ")
		m := configMap(tenant, "a-web")
		Expect(get(ctx, m)).To(Succeed())
		Expect(m.Data).To(HaveKeyWithValue("greeting", "y"))

		By("setting the policy Delete")
		change(ctx, k, `{"spec": {"deletionPolicy": "Delete"}}`)
		gone(ctx, k)
		gone(ctx, definition("stays."+group))
		Expect(apierrors.IsNotFound(get(ctx, m))).To(BeTrue(), "nothing of the object is left")
		var roles rbacv1.ClusterRoleList
		Expect(plane.Client().List(ctx, &roles)).To(Succeed())
		for _, r := range roles.Items {
			Expect(r.Name).NotTo(ContainSubstring("stays."))
		}
	})

	It("removes its objects in order when the CustomResourceDefinition is deleted, and creates it again",
		func(ctx SpecContext) {
			platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
			publishShop(ctx, platform, "Renewed", "main@sha1:1")
			k := newKind(ctx, platform, "Renewed")
			kindReady(ctx, k, "main@sha1:1")
			a := newShop(ctx, "Renewed", tenant, "a", map[string]any{"greeting": "x"})
			shopBecomes(ctx, a, "True ")
			d := definition("reneweds." + group)
			Expect(get(ctx, d)).To(Succeed())
			before := d.UID
			remove(ctx, d)
			Eventually(ctx, func() (bool, error) {
				err := get(ctx, d)
				return d.UID != before, client.IgnoreNotFound(err)
			}, soon).Should(BeTrue(), "the definition is created again")
			Eventually(ctx, func() bool { return apierrors.IsNotFound(get(ctx, configMap(tenant, "a-web"))) }, soon).
				Should(BeTrue(), "nothing of the object is left")

			By("creating the object again")
			kindReady(ctx, k, "main@sha1:1")
			Eventually(ctx, func() error {
				return plane.Client().Create(ctx, shop("Renewed", tenant, "a", map[string]any{"greeting": "y"}))
			}, soon).Should(Succeed())
			shopBecomes(ctx, a, "True ")
			Expect(release(ctx, tenant, "a")).To(Equal("RELEASE y"))
		})

	It("is refused with a clear message", func(ctx SpecContext) {
		platform := framework.Namespace(ctx, h, "platform")
		expect := func(k *appsv1.KsctlKind, message string) {
			GinkgoHelper()
			Eventually(ctx, func() (string, error) {
				err := get(ctx, k)
				for _, c := range k.Status.Conditions {
					if c.Type == "Stalled" {
						return c.Reason + ": " + c.Message, err
					}
				}
				return "", err
			}, soon).Should(ContainSubstring(message))
		}
		By("a group that the controller may not serve")
		publishShop(ctx, platform, "Other", "main@sha1:1", "group: shops.example.com", "group: other.example.com")
		k := newKind(ctx, platform, "Other")
		expect(k, "GroupNotAllowed: stack \"shop\" serves Other.other.example.com, but --kind-groups of the controller")

		By("a schema that the API server refuses")
		publishShop(ctx, platform, "Other", "main@sha1:2", "{type: integer, default: 80}",
			"{type: integer, default: many}")
		expect(k, "InvalidStack: spec.serves: ")

		By("an expression over a field that does not exist")
		publishShop(ctx, platform, "Other", "main@sha1:3", "{expr: self.spec.greeting}", "{expr: self.spec.greetings}")
		expect(k, "undefined field 'greetings'")

		By("a CustomResourceDefinition with another owner")
		Expect(plane.ApplyYAML(ctx, []byte(strings.ReplaceAll(foreignDefinition, "KIND", "other")))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { remove(ctx, definition("others."+group)) })
		publishShop(ctx, platform, "Other", "main@sha1:4")
		expect(k, "OwnedByAnother: CustomResourceDefinition others.shops.example.com exists, and KsctlKind other did "+
			"not create it")
	})

	It("has the conditions of the stack also when a field of the object is invalid", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishShop(ctx, platform, "Encoded", "main@sha1:1", "{expr: self.spec.greeting}",
			"{expr: string(base64.decode(self.spec.greeting))}")
		k := newKind(ctx, platform, "Encoded")
		kindReady(ctx, k, "main@sha1:1")
		a := newShop(ctx, "Encoded", tenant, "a", map[string]any{"greeting": "aGk="})
		shopBecomes(ctx, a, "True ")
		Expect(condition(a, "Available")).To(HavePrefix("True "))
		change(ctx, a, `{"spec": {"greeting": "%"}}`)
		shopBecomes(ctx, a, "False InvalidStack: ")
		Expect(condition(a, "Available")).To(HavePrefix("False InvalidStack"))
		Expect(get(ctx, configMap(tenant, "a-web"))).To(Succeed(), "what is installed stays")
	})

	It("reports a rule that the controller lacks", func(ctx SpecContext) {
		platform := framework.Namespace(ctx, h, "platform")
		publishShop(ctx, platform, "Ungranted", "main@sha1:1", "group: shops.example.com", "group: "+ungrantedGroup)
		k := newKind(ctx, platform, "Ungranted")
		kindBecomes(ctx, k, "False ReconciliationFailed: ")
		Expect(kindCondition(ctx, k)).To(And(ContainSubstring("RBAC permissions not currently held"),
			ContainSubstring(ungrantedGroup), ContainSubstring("create")))
	})

	It("serves its objects when its stack is gone, and reports an expression that costs too much",
		func(ctx SpecContext) {
			platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
			publishShop(ctx, platform, "Held", "main@sha1:1")
			k := newKind(ctx, platform, "Held")
			kindReady(ctx, k, "main@sha1:1")
			a := newShop(ctx, "Held", tenant, "a", map[string]any{"greeting": "x"})
			shopBecomes(ctx, a, "True ")

			By("a source without the stack")
			Expect(h.PublishSource(ctx, platform, "fleet", "main@sha1:2", artifacts.Files(map[string]string{
				"README.md": "Nothing is here."}))).To(Succeed())
			kindBecomes(ctx, k, "False InvalidStack: ")
			change(ctx, a, `{"spec": {"greeting": "changed"}}`)
			shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:1")
			Expect(release(ctx, tenant, "a")).To(Equal("RELEASE changed"))

			By("a ClusterRole that somebody deletes")
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "ksctl-gitops:helds." + group + ":edit"}}
			remove(ctx, role)
			publishShop(ctx, platform, "Held", "main@sha1:3")
			kindReady(ctx, k, "main@sha1:3")
			Eventually(ctx, get).WithArguments(role).WithTimeout(soon).Should(Succeed(), "it is created again")

			By("an expression that loops in loops")
			loops := "1"
			for range 8 {
				loops = "[1, 2, 3, 4, 5, 6, 7, 8, 9].map(i, " + loops + ")"
			}
			publishShop(ctx, platform, "Held", "main@sha1:4", "{expr: self.spec.greeting}",
				`{expr: "string(`+loops+`.size())"}`)
			kindReady(ctx, k, "main@sha1:4")
			shopBecomes(ctx, a, "False InvalidStack: ")
			Expect(condition(a, "Ready")).To(ContainSubstring("cost limit"))
			Expect(get(ctx, configMap(tenant, "a-web"))).To(Succeed(), "nothing is removed")
		})

	It("acts with the rights of the account of each object's namespace, and stays in its namespaces",
		func(ctx SpecContext) {
			platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
			elsewhere := framework.Namespace(ctx, h, "elsewhere")
			publishShop(ctx, platform, "Bound", "main@sha1:1")
			k := newKind(ctx, platform, "Bound", func(k *appsv1.KsctlKind) { k.Spec.ServiceAccountName = "tenant" })
			kindReady(ctx, k, "main@sha1:1")
			a := newShop(ctx, "Bound", tenant, "a", map[string]any{"greeting": "x"})
			shopBecomes(ctx, a, "False ServiceAccountNotFound: ")

			By("an account without rights")
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "tenant"}}
			Expect(plane.Client().Create(ctx, account)).To(Succeed())
			shopBecomes(ctx, a, "False ReconciliationFailed: ")
			Expect(condition(a, "Ready")).To(ContainSubstring("forbidden"))

			By("an account that may edit its namespace")
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "tenant"},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenant, Name: "tenant"}}}
			Expect(plane.Client().Create(ctx, binding)).To(Succeed())
			shopBecomes(ctx, a, "True ")

			By("a namespace that the KsctlKind does not list")
			b := newShop(ctx, "Bound", tenant, "b", map[string]any{"greeting": "x", "namespace": elsewhere})
			shopBecomes(ctx, b, "False InvalidObject: ")
			Expect(condition(b, "Ready")).To(ContainSubstring("namespace " + elsewhere + " is not the namespace of " +
				"the Bound.shops.example.com, and not among spec.targetNamespaces of the KsctlKind"))
			remove(ctx, b)
			gone(ctx, b)
		})
})

const foreignDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.shops.example.com}
spec:
  group: shops.example.com
  scope: Namespaced
  names: {plural: KINDs, singular: KIND, kind: Foreign, listKind: ForeignList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`
