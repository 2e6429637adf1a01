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
	value = heard.Secret("a whisper of " + name + " " + value)
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {value: %q}\n", name, value)
}

func theSecret(ns, name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: named(ns, name)} }

// limited makes a namespace whose account may do everything with ConfigMaps and
// some things with Secrets, which allow changes.
func limited(ctx context.Context, verbs ...string) (ns string, allow func(verbs ...string)) {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "limited")
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.Role{ObjectMeta: named(ns, "deployer")}
	rules := func(verbs []string) []rbacv1.PolicyRule {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}
		if len(verbs) > 0 {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs})
		}
		return rules
	}
	role.Rules = rules(verbs)
	Expect(plane.Client().Create(ctx, role)).To(Succeed())
	Expect(plane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named(ns, "deployer"),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "deployer", Namespace: ns}}})).To(Succeed())
	Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "deployer")})).To(Succeed())
	inForce(ctx, ns, "*", "configmaps")
	for _, v := range verbs {
		inForce(ctx, ns, v, "secrets")
	}
	return ns, func(verbs ...string) {
		GinkgoHelper()
		role.Rules = rules(verbs)
		Expect(plane.Client().Update(ctx, role)).To(Succeed())
	}
}

// tracks waits until an install's inventory has these ids and no other.
func tracks(ctx context.Context, in *appsv1.KsctlInstall, ids ...string) {
	GinkgoHelper()
	Eventually(ctx, func() (have []string) {
		if err := get(ctx, in); err != nil || in.Status.Inventory == nil {
			return nil
		}
		for _, e := range in.Status.Inventory.Entries {
			have = append(have, e.ID)
		}
		return have
	}, soon, "50ms").Should(ConsistOf(ids), "the inventory lists what is left")
}

func idOf(kind, ns, name string) string {
	return stacks.Ref{Kind: kind, Namespace: ns, Name: name}.ID()
}

var _ = Describe("Removal", func() {
	It("names what an object waits for, and stays until it is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 3)
		Expect(merge(`{"metadata":{"finalizers":["example.com/theirs"]}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		says(ctx, in, "Unknown", "Removing", "1 objects are left", "ConfigMap "+ns+"/b", "example.com/theirs")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "the others went")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue(), "the others went")
		tracks(ctx, in, idOf("ConfigMap", ns, "b"))
		mark := marked(ctx)
		noWrites(ctx, ns, mark, "nothing is asked for twice")
		Consistently(ctx, func() bool { return absent(ctx, in) }, quiet, "500ms").Should(BeFalse(), "it is not gone yet")
		Expect(merge(`{"metadata":{"finalizers":null}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		removed(ctx, in)
	})

	It("works when source and stack are gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 2)
		Expect(plane.Client().Delete(ctx, &appsv1.KsctlSource{ObjectMeta: named(ns, "src")})).To(Succeed())
		says(ctx, in, "False", "SourceNotFound")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"), "that alone removes nothing")
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	It("of objects that somebody removed, or made anew meanwhile, is done", suite.Safety, func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 3)
		suspend(ctx, in)
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "b"))).To(Succeed())
		other := theirs(ctx, ns, "b", metav1.ObjectMeta{})
		removed(ctx, in)
		released(ctx, other, "theirs")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
	})

	It("by prune: false releases, and takes again what comes back", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 2, func(in *appsv1.KsctlInstall) { in.Spec.Prune = ptr.To(false) })
		b := seen(ctx, ns, "b")
		stack(ctx, ns, "main@sha1:2", configMap("a", "1"))
		atRevision(ctx, in, "main@sha1:2")
		left := seen(ctx, ns, "b")
		Expect(left.UID).To(Equal(b.UID))
		Expect(left.Data).To(Equal(b.Data))
		Expect(left.Labels).To(BeEmpty())
		Expect(left.Annotations).To(BeEmpty())
		Eventually(ctx, told(ctx, in, "Left"), soon).Should(HaveLen(1))
		mark := marked(ctx)
		stack(ctx, ns, "main@sha1:3", configMap("a", "1"), configMap("b", "3"))
		atRevision(ctx, in, "main@sha1:3")
		n := writes(ctx, ns, mark)
		Expect(n).To(HaveLen(2), "a create that is refused, an adoption: %s", n)
		again := seen(ctx, ns, "b")
		Expect(merge(`{"data":{"value":"drifted"}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		restored(ctx, again)
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse(), "by then it was there before")
	})

	It("keeps track of what it may not delete, and goes on when it may", func(ctx SpecContext) {
		ns, allow := limited(ctx, "get", "create", "patch")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), secret("s", "1"))
		in := newInstall(ctx, ns, "i", retrying(2*time.Second))
		atRevision(ctx, in, "main@sha1:1")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		says(ctx, in, "Unknown", "Removing", "Secret "+ns+"/s", "cannot delete")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "the others went")
		tracks(ctx, in, idOf("Secret", ns, "s"))
		Consistently(ctx, func() bool { return absent(ctx, in) }, quiet, "500ms").Should(BeFalse(), "it is not gone yet")
		allow("*")
		removed(ctx, in)
		Expect(absent(ctx, theSecret(ns, "s"))).To(BeTrue())
	})

	It("waits for the account that it is to be done with", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 1)
		Expect(plane.Client().Delete(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "deployer")})).To(Succeed())
		says(ctx, in, "False", "ServiceAccountNotFound") // the controller knows, whatever it hears of first
		mark := marked(ctx)
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		says(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/deployer")
		Expect(writes(ctx, ns, mark)).To(BeEmpty())
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
		Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "deployer")})).To(Succeed())
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})
})

var _ = Describe("A right that the account lacks", func() {
	It("for one kind does not disturb the others, and is taken up when it is given", func(ctx SpecContext) {
		ns, allow := limited(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("one", "two", "three:one"), map[string]string{
			"one/a.yaml": configMap("a", "1"), "one/s.yaml": secret("s", "1"), "two/b.yaml": configMap("b", "1"), "three/c.yaml": configMap("c", "1")}))
		in := newInstall(ctx, ns, "i", retrying(2*time.Second))
		says(ctx, in, "False", "ReconciliationFailed", "Secret "+ns+"/s", "secrets", "forbidden")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"), "the rest of the component is applied")
		Expect(component(in, "two").Ready).To(BeTrue(), "an independent component is ready")
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue(), "one that depends on it waits")
		Expect(component(in, "three").Message).To(ContainSubstring("one"))
		allow("*")
		atRevision(ctx, in, "main@sha1:1")
		Expect(get(ctx, theSecret(ns, "s"))).To(Succeed())
		removed(ctx, in)
	})

	It("to delete what left the stack keeps it in the inventory", func(ctx SpecContext) {
		ns, allow := limited(ctx, "get", "create", "patch")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"), secret("s", "1"))
		in := newInstall(ctx, ns, "i", retrying(2*time.Second))
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		says(ctx, in, "False", "ReconciliationFailed", "Secret "+ns+"/s", "forbidden")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue(), "the other one went")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "2"))
		tracks(ctx, in, idOf("ConfigMap", ns, "a"), idOf("Secret", ns, "s"))
		allow("*")
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, theSecret(ns, "s"))).To(BeTrue())
		tracks(ctx, in, idOf("ConfigMap", ns, "a"))
		removed(ctx, in)
	})
})
