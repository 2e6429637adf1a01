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

// dependingOnObject makes an install depend on an object in its namespace.
func dependingOnObject(apiVersion, kind, name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		in.Spec.DependsOn = append(in.Spec.DependsOn, appsv1.Dependency{APIVersion: apiVersion, Kind: kind, Name: name})
	}
}

var _ = Describe("Installs that depend on an object of another install", func() {
	It("are removed before it, also when both are deleted at once, and are reported while "+
		"they stay", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: objectMeta(ns, "db")}
		both := func() (a, b *appsv1.KsctlInstall) {
			publish(ctx, ns, "a", "r1", database)
			a, b = install(ctx, ns, "a"),
				installConfigMap(ctx, ns, "b", dependingOnObject("apps/v1", "Deployment", "db"))
			becomesReady(ctx, a, b)
			return a, b
		}
		a, b := both()
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a, b)
		awaitGone(ctx, a, b, db, aConfigMap(ns, "b"))
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		var order []string
		for _, r := range requests.Where(cluster.Verb("delete"),
			cluster.ByEffectiveUser(cluster.ServiceAccountUser(ns, "deployer")), cluster.InNamespace(ns)).
			Without(cluster.Failed) {
			order = append(order, r.Resource+"/"+r.Name)
		}
		Expect(order).To(Equal([]string{"configmaps/b", "deployments/db"}))

		By("an install that is deleted alone waits for its dependents")
		a, b = both()
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/b, which needs Deployment "+ns+
			"/db and is not being removed", "dependsOn")
		Consistently(ctx, func() bool { return absent(ctx, db) }, quiet, "200ms").Should(BeFalse())
		Expect(get(ctx, db)).To(Succeed())
		Expect(db.DeletionTimestamp).To(BeNil())
		mergePatch(ctx, b, `{"spec":{"dependsOn":null}}`)
		awaitGone(ctx, a, db)
		becomesReady(ctx, b)
		remove(ctx, b)
		awaitGone(ctx, b)
	})

	It("do not block the removal of an install whose object is taken over, not its own, "+
		"or gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: objectMeta(ns, "db")}
		from := func(source string) func(*appsv1.KsctlInstall) {
			return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = source }
		}
		publish(ctx, ns, "shared", "r1", database)
		a, d := install(ctx, ns, "a", from("shared")),
			installConfigMap(ctx, ns, "d", dependingOnObject("apps/v1", "Deployment", "db"))
		becomesReady(ctx, a, d)
		Expect(get(ctx, db)).To(Succeed())
		uid := db.UID
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/d")
		b := install(ctx, ns, "b", from("shared")) // as if a had been renamed
		awaitGone(ctx, a)
		becomesReady(ctx, b, d)
		Expect(get(ctx, db)).To(Succeed())
		Expect(db.UID).To(Equal(uid))

		By("an install that does not own the object")
		publish(ctx, ns, "other", "r1", database)
		c := install(ctx, ns, "c", from("other"))
		reports(ctx, c, metav1.ConditionFalse, "OwnedByAnother", "Deployment "+ns+"/db")
		remove(ctx, c)
		awaitGone(ctx, c)
		Expect(absent(ctx, db)).To(BeFalse())

		By("an object that another client deletes meanwhile")
		remove(ctx, b)
		reports(ctx, b, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/d")
		remove(ctx, db)
		awaitGone(ctx, b)
		remove(ctx, d)
		awaitGone(ctx, d)
	})

	It("block the removal when both only share a namespace", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-shared"}}
		Expect(h.ControlPlane.Client().Create(ctx, space)).To(Succeed())
		a := installConfigMap(ctx, ns, "a", dependingOnObject("v1", "Namespace", space.Name))
		Expect(h.PublishSource(ctx, ns, "d", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: main, manifests: [main/], namespace: "+space.Name+", createNamespace: true}\n",
			map[string]string{"main/a.yaml": configMap("d", "1")}))).To(Succeed())
		d := install(ctx, ns, "d", dependingOn("a"))
		becomesReady(ctx, a, d)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		remove(ctx, a, d)
		awaitGone(ctx, a, d)
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		var order []string
		for _, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"),
			cluster.ByEffectiveUser(cluster.ServiceAccountUser(ns, "deployer"))).Without(cluster.Failed) {
			order = append(order, r.Name)
		}
		Expect(order).To(Equal([]string{"d", "a"}))
		remove(ctx, space)
		awaitGone(ctx, space)
	})

	It("are in the preview of its KsctlRemove, which waits for them when it removes the whole "+
		"install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		db := &k8sappsv1.Deployment{ObjectMeta: objectMeta(ns, "db")}
		publish(ctx, ns, "a", "r1", database)
		a, b := install(ctx, ns, "a"), installConfigMap(ctx, ns, "b", dependingOnObject("apps/v1", "Deployment", "db"))
		becomesReady(ctx, a, b)
		ra := newRemove(ctx, ns, "away-a", "a")
		removeReports(ctx, ra, metav1.ConditionUnknown, "Removing",
			"KsctlInstall a reports: dependents must be removed first", ns+"/b, which needs Deployment "+ns+"/db")
		Expect(ra.Status.Removal.Dependents).
			To(ConsistOf("KsctlInstall " + ns + "/b depends on Deployment " + ns + "/db and must be removed first"))
		Expect(absent(ctx, db)).To(BeFalse())
		rb := newRemove(ctx, ns, "away-b", "b")
		removeReports(ctx, rb, metav1.ConditionTrue, "", "nothing is left")
		removeReports(ctx, ra, metav1.ConditionTrue, "", "nothing is left")
		remove(ctx, a, b, ra, rb)
		awaitGone(ctx, a, b, ra, rb)
	})

	It("are removed with it when it installed them, or when both depend on each other", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installConfigMap(ctx, ns, "a")
		b := installConfigMap(ctx, ns, "b", dependingOnObject("v1", "ConfigMap", "a"))
		becomesReady(ctx, a, b)
		mergePatch(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":"b"}]}}`)
		becomesReady(ctx, a)
		remove(ctx, a, b)
		awaitGone(ctx, a, b, aConfigMap(ns, "a"), aConfigMap(ns, "b"))

		By("an install that is an object of the other install")
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
		awaitGone(ctx, parent, &appsv1.KsctlInstall{ObjectMeta: objectMeta(ns, "child")}, aConfigMap(ns, "child"),
			aConfigMap(ns, "settings"))
	})
})
