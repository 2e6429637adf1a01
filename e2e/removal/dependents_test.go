package removal_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const database = `apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "example.com/db:1"}]}
`

// needing makes an install depend on an object of its own namespace.
func needing(apiVersion, kind, name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		in.Spec.DependsOn = append(in.Spec.DependsOn, appsv1.Dependency{APIVersion: apiVersion, Kind: kind, Name: name})
	}
}

var _ = Describe("Installs that depend on an object of another one", func() {
	It("go before it, also when both are deleted at once, and are named while they stay", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: named(ns, "db")}
		both := func() (a, b *appsv1.KsctlInstall) {
			publish(ctx, ns, "a", "r1", database)
			a, b = install(ctx, ns, "a"), one(ctx, ns, "b", needing("apps/v1", "Deployment", "db"))
			becomesReady(ctx, a, b)
			return a, b
		}
		a, b := both()
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a, b)
		gone(ctx, a, b, db, aConfigMap(ns, "b"))
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		var order []string
		for _, r := range requests.Where(cluster.Verb("delete"), cluster.As(cluster.ServiceAccountUser(ns, "deployer")), cluster.In(ns)).Without(cluster.Failed) {
			order = append(order, r.Resource+"/"+r.Name)
		}
		Expect(order).To(Equal([]string{"configmaps/b", "deployments/db"}))

		By("one that is deleted alone waits for them")
		a, b = both()
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/b, which needs Deployment "+ns+"/db and stays", "dependsOn")
		Consistently(ctx, func() bool { return absent(ctx, db) }, quiet, "200ms").Should(BeFalse())
		Expect(get(ctx, db)).To(Succeed())
		Expect(db.DeletionTimestamp).To(BeNil())
		change(ctx, b, `{"spec":{"dependsOn":null}}`)
		gone(ctx, a, db)
		becomesReady(ctx, b)
		remove(ctx, b)
		gone(ctx, b)
	})

	It("do not hold what another install takes over, what it does not have, and what is gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: named(ns, "db")}
		from := func(source string) func(*appsv1.KsctlInstall) {
			return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = source }
		}
		publish(ctx, ns, "shared", "r1", database)
		a, d := install(ctx, ns, "a", from("shared")), one(ctx, ns, "d", needing("apps/v1", "Deployment", "db"))
		becomesReady(ctx, a, d)
		Expect(get(ctx, db)).To(Succeed())
		uid := db.UID
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/d")
		b := install(ctx, ns, "b", from("shared")) // as if a was called otherwise now
		gone(ctx, a)
		becomesReady(ctx, b, d)
		Expect(get(ctx, db)).To(Succeed())
		Expect(db.UID).To(Equal(uid))

		By("an install that was refused the object")
		publish(ctx, ns, "other", "r1", database)
		c := install(ctx, ns, "c", from("other"))
		says(ctx, c, metav1.ConditionFalse, "OwnedByAnother", "Deployment "+ns+"/db")
		remove(ctx, c)
		gone(ctx, c)
		Expect(absent(ctx, db)).To(BeFalse())

		By("an object that somebody deletes meanwhile")
		remove(ctx, b)
		says(ctx, b, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/d")
		remove(ctx, db)
		gone(ctx, b)
		remove(ctx, d)
		gone(ctx, d)
	})

	It("are waited for where they share no more than a namespace with it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-shared"}}
		Expect(h.Plane.Client().Create(ctx, space)).To(Succeed())
		a := one(ctx, ns, "a", needing("v1", "Namespace", space.Name))
		Expect(h.Publish(ctx, ns, "d", "r1", harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: main, manifests: [main/], namespace: "+space.Name+", createNamespace: true}\n",
			map[string]string{"main/a.yaml": configMap("d", "1")}))).To(Succeed())
		d := install(ctx, ns, "d", after("a"))
		becomesReady(ctx, a, d)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a, d)
		gone(ctx, a, d)
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		var order []string
		for _, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.As(cluster.ServiceAccountUser(ns, "deployer"))).Without(cluster.Failed) {
			order = append(order, r.Name)
		}
		Expect(order).To(Equal([]string{"d", "a"}))
		remove(ctx, space)
		gone(ctx, space)
	})

	It("stand in the rehearsal of its removal, which waits for them where it is asked for as a whole", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: named(ns, "db")}
		publish(ctx, ns, "a", "r1", database)
		a, b := install(ctx, ns, "a"), one(ctx, ns, "b", needing("apps/v1", "Deployment", "db"))
		becomesReady(ctx, a, b)
		ra := ask(ctx, ns, "away-a", "a")
		answers(ctx, ra, metav1.ConditionUnknown, "Removing", "KsctlInstall a says: these depend on it and go first", ns+"/b, which needs Deployment "+ns+"/db")
		Expect(ra.Status.Removal.Dependents).To(ConsistOf("KsctlInstall " + ns + "/b, which needs Deployment " + ns + "/db and has to go first"))
		Expect(absent(ctx, db)).To(BeFalse())
		rb := ask(ctx, ns, "away-b", "b")
		answers(ctx, rb, metav1.ConditionTrue, "", "nothing is left")
		answers(ctx, ra, metav1.ConditionTrue, "", "nothing is left")
		remove(ctx, a, b, ra, rb)
		gone(ctx, a, b, ra, rb)
	})

	It("go with it where it brought them, or where each needs the other", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := one(ctx, ns, "a")
		b := one(ctx, ns, "b", needing("v1", "ConfigMap", "a"))
		becomesReady(ctx, a, b)
		change(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":"b"}]}}`)
		becomesReady(ctx, a)
		remove(ctx, a, b)
		gone(ctx, a, b, aConfigMap(ns, "a"), aConfigMap(ns, "b"))

		By("an install that is an object of the other one")
		publish(ctx, ns, "child", "r1", configMap("child", "1"))
		publish(ctx, ns, "parent", "r1", configMap("settings", "1"), fmt.Sprintf(`apiVersion: %s
kind: KsctlInstall
metadata: {name: child}
spec:
  sourceRef: {kind: KsctlSource, name: child}
  path: stacks
  stack: app
  serviceAccountName: deployer
  dependsOn: [{apiVersion: v1, kind: ConfigMap, name: settings}]
`, appsv1.GroupVersion))
		parent := install(ctx, ns, "parent")
		becomesReady(ctx, parent)
		Expect(get(ctx, aConfigMap(ns, "child"))).To(Succeed())
		remove(ctx, parent)
		gone(ctx, parent, &appsv1.KsctlInstall{ObjectMeta: named(ns, "child")}, aConfigMap(ns, "child"), aConfigMap(ns, "settings"))
	})
})
