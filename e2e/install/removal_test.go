package install_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

func secret(name, value string) string {
	value = scanner.AddSecret("a whisper of " + name + " " + value)
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {value: %q}\n", name, value)
}

func secretObject(ns, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(ns, name)}
}

// restrictedNamespace creates a namespace whose ServiceAccount may do everything with
// ConfigMaps, and has the given verbs for Secrets. The returned function replaces these verbs.
func restrictedNamespace(ctx context.Context, verbs ...string) (ns string, allow func(verbs ...string)) {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "limited")
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.Role{ObjectMeta: objectMeta(ns, "deployer")}
	rules := func(verbs []string) []rbacv1.PolicyRule {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}
		if len(verbs) > 0 {
			rules = append(rules,
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs})
		}
		return rules
	}
	role.Rules = rules(verbs)
	Expect(plane.Client().Create(ctx, role)).To(Succeed())
	Expect(plane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, "deployer"),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "deployer", Namespace: ns}}})).To(Succeed())
	Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "deployer")})).To(Succeed())
	awaitPermission(ctx, ns, "*", "configmaps")
	for _, v := range verbs {
		awaitPermission(ctx, ns, v, "secrets")
	}
	return ns, func(verbs ...string) {
		GinkgoHelper()
		role.Rules = rules(verbs)
		Expect(plane.Client().Update(ctx, role)).To(Succeed())
	}
}

// awaitInventory waits until the inventory of an install has exactly these ids.
func awaitInventory(ctx context.Context, in *appsv1.KsctlInstall, ids ...string) {
	GinkgoHelper()
	Eventually(ctx, func() (have []string) {
		if err := get(ctx, in); err != nil || in.Status.Inventory == nil {
			return nil
		}
		for _, e := range in.Status.Inventory.Entries {
			have = append(have, e.ID)
		}
		return have
	}, soon, "50ms").Should(ConsistOf(ids), "the inventory has exactly the remaining objects")
}

func idOf(kind, ns, name string) string {
	return stacks.Ref{Kind: kind, Namespace: ns, Name: name}.ID()
}

var _ = Describe("Removal", func() {
	It("reports the finalizers of an object and waits until it is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 3)
		Expect(mergePatch(`{"metadata":{"finalizers":["example.com/theirs"]}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		reports(ctx, in, "Unknown", "Removing", "1 objects are left", "ConfigMap "+ns+"/b", "example.com/theirs")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "the others are deleted")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue(), "the others are deleted")
		awaitInventory(ctx, in, idOf("ConfigMap", ns, "b"))
		mark := auditMark(ctx)
		expectNoWrites(ctx, ns, mark, "the deletion is not repeated")
		Consistently(ctx, func() bool {
			return absent(ctx, in)
		}, quiet, "500ms").Should(BeFalse(), "the install still exists")
		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		deleteAndWait(ctx, in)
	})

	It("works without the source and the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 2)
		Expect(plane.Client().Delete(ctx, &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "src")})).To(Succeed())
		reports(ctx, in, "False", "SourceNotFound")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"), "a missing source removes nothing")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	It("leaves objects that another client deleted and recreated", suite.Safety, func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 3)
		suspend(ctx, in)
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		other := foreignConfigMap(ctx, ns, "b", metav1.ObjectMeta{})
		deleteAndWait(ctx, in)
		expectReleased(ctx, other, "theirs")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
	})

	It("with prune: false releases an object, and adopts it again when it returns to the stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 2, func(in *appsv1.KsctlInstall) { in.Spec.Prune = ptr.To(false) })
		b := getConfigMap(ctx, ns, "b")
		stack(ctx, ns, "main@sha1:2", configMap("a", "1"))
		atRevision(ctx, in, "main@sha1:2")
		left := getConfigMap(ctx, ns, "b")
		Expect(left.UID).To(Equal(b.UID))
		Expect(left.Data).To(Equal(b.Data))
		Expect(left.Labels).To(BeEmpty())
		Expect(left.Annotations).To(BeEmpty())
		Eventually(ctx, eventsWithReason(ctx, in, "Released"), soon).Should(HaveLen(1))
		mark := auditMark(ctx)
		stack(ctx, ns, "main@sha1:3", configMap("a", "1"), configMap("b", "3"))
		atRevision(ctx, in, "main@sha1:3")
		n := writes(ctx, ns, mark)
		Expect(n).To(HaveLen(2), "a rejected create and an adoption: %s", n)
		again := getConfigMap(ctx, ns, "b")
		Expect(mergePatch(`{"data":{"value":"drifted"}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		awaitRestored(ctx, again)
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse(), "at its adoption it was an existing object")
	})

	It("keeps an object in the inventory that the account may not delete, and deletes it when "+
		"permitted", func(ctx SpecContext) {
		ns, allow := restrictedNamespace(ctx, "get", "create", "patch")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), secret("s", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		atRevision(ctx, in, "main@sha1:1")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		reports(ctx, in, "Unknown", "Removing", "Secret "+ns+"/s", "cannot delete")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "the others are deleted")
		awaitInventory(ctx, in, idOf("Secret", ns, "s"))
		Consistently(ctx, func() bool {
			return absent(ctx, in)
		}, quiet, "500ms").Should(BeFalse(), "the install still exists")
		allow("*")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, secretObject(ns, "s"))).To(BeTrue())
	})

	It("waits for a missing service account", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 1)
		Expect(plane.Client().Delete(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "deployer")})).To(Succeed())
		reports(ctx, in, "False", "ServiceAccountNotFound") // the controller has seen the deletion
		mark := auditMark(ctx)
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		reports(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/deployer")
		Expect(writes(ctx, ns, mark)).To(BeEmpty())
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
		Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "deployer")})).To(Succeed())
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})
})

var _ = Describe("A missing permission of the service account", func() {
	It("for one kind does not affect other kinds, and is used when granted", func(ctx SpecContext) {
		ns, allow := restrictedNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("one", "two", "three:one"), map[string]string{
			"one/a.yaml": configMap("a", "1"), "one/s.yaml": secret("s", "1"), "two/b.yaml": configMap("b", "1"),
			"three/c.yaml": configMap("c", "1")}))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", "Secret "+ns+"/s", "secrets", "forbidden")
		Expect(getConfigMap(ctx, ns, "a").Data).
			To(HaveKeyWithValue("value", "1"), "the rest of the component is applied")
		Expect(component(in, "two").Ready).To(BeTrue(), "an independent component is ready")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue(), "a dependent component waits")
		Expect(component(in, "three").Message).To(ContainSubstring("one"))
		allow("*")
		atRevision(ctx, in, "main@sha1:1")
		Expect(get(ctx, secretObject(ns, "s"))).To(Succeed())
		deleteAndWait(ctx, in)
	})

	It("to delete an object that left the stack keeps the object in the inventory", func(ctx SpecContext) {
		ns, allow := restrictedNamespace(ctx, "get", "create", "patch")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"), secret("s", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		reports(ctx, in, "False", "ReconciliationFailed", "Secret "+ns+"/s", "forbidden")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue(), "the other one is deleted")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "2"))
		awaitInventory(ctx, in, idOf("ConfigMap", ns, "a"), idOf("Secret", ns, "s"))
		allow("*")
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, secretObject(ns, "s"))).To(BeTrue())
		awaitInventory(ctx, in, idOf("ConfigMap", ns, "a"))
		deleteAndWait(ctx, in)
	})
})
