package install_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/internal/manager"
)

// controller returns the user that the controller authenticates as.
func controller() string {
	return cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount)
}

// configMapsOnlyNamespace creates a namespace whose ServiceAccount may only access ConfigMaps.
func configMapsOnlyNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "narrow")
	Expect(err).NotTo(HaveOccurred())
	serviceAccount(ctx, ns, "deployer")
	allow(ctx, ns, "configmaps")
	return ns
}

func serviceAccount(ctx context.Context, ns, name string) {
	GinkgoHelper()
	Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, name)})).To(Succeed())
}

// allow grants the ServiceAccount deployer of a namespace all verbs on resources of the core
// group.
func allow(ctx context.Context, ns string, resources ...string) {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: objectMeta(ns, resources[0]),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"*"}}}}
	Expect(plane.Client().Create(ctx, role)).To(Succeed())
	Expect(plane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, resources[0]),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: resources[0]},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "deployer"}}})).To(Succeed())
	for _, r := range resources {
		awaitPermission(ctx, ns, "*", r)
	}
}

// awaitPermission waits until the ServiceAccount deployer of a namespace has a verb on a
// resource of the core group.
func awaitPermission(ctx context.Context, ns, verb, resource string) {
	GinkgoHelper()
	Expect(plane.AwaitPermission(ctx, tenant(ns),
		authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource})).To(Succeed())
}

func withServiceAccount(name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = name }
}

var secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: secret}\nstringData: {a: " +
	scanner.AddSecret("never-in-any-output") + "}\n"

var _ = Describe("Tenancy", func() {
	It("reports a forbidden object, applies the others, and recovers when it is permitted", func(ctx SpecContext) {
		ns := configMapsOnlyNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main", "after:main", "other"), map[string]string{
			"main/a.yaml": configMap("a", "1"), "main/s.yaml": secretManifest, "after/b.yaml": configMap("after", "1"),
			"other/c.yaml": configMap("other", "1")}))
		mark, began := auditMark(ctx), time.Now()
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", `component "main"`, "create Secret "+ns+"/secret",
			"forbidden", tenant(ns), `cannot patch resource "secrets"`)
		Expect(condition(in, "Reconciling")).To(HaveField("Reason", "ProgressingWithRetry"))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Consistently(ctx, func(g Gomega) {
			tries := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("secrets"))
			intervals := int(time.Since(began) / (1800 * time.Millisecond)) // the intervals vary
			g.Expect(len(tries)).To(BeNumerically("<=", 2+intervals), "one try at each retryInterval")
		}, "3s").Should(Succeed())
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(controller()), cluster.Resource("secrets"),
			cluster.InNamespace(ns), cluster.Write)).To(BeEmpty(), "never with the controller's permissions")

		allow(ctx, ns, "secrets")
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("makes no request for an account that does not exist, and continues when it is created", func(ctx SpecContext) {
		ns := configMapsOnlyNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly, withServiceAccount("ghost"))
		reports(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/ghost does not exist")
		ghost := cluster.ServiceAccountUser(ns, "ghost")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(ghost))).To(BeEmpty())
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(controller()), cluster.Resource("configmaps"),
			cluster.InNamespace(ns))).To(BeEmpty(), "nor with the controller's permissions")
		serviceAccount(ctx, ns, "ghost")
		reports(ctx, in, "False", "ReconciliationFailed", ghost, `cannot patch resource "configmaps"`)

		commit(ctx, in, withServiceAccount("deployer"))
		atRevision(ctx, in, "main@sha1:1")

		By("the account being deleted")
		mark = auditMark(ctx)
		Expect(plane.Client().Delete(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "deployer")})).To(Succeed())
		reports(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/deployer does not exist")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Consistently(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "a"))
		}, "1s").Should(BeTrue(), "the RoleBinding still permits the user name")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)))).To(BeEmpty())
		serviceAccount(ctx, ns, "deployer")
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
	})

	It("writes all objects as the account", func(ctx SpecContext) {
		ns := configMapsOnlyNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent,
				map[string]string{"main/a.yaml": configMap("a", "1"), "main/b.yaml": configMap("b", "1")}))
		Expect(plane.Client().Create(ctx, aConfigMap(ns, "b"))).To(Succeed(), "an object to adopt")
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent,
				map[string]string{"main/a.yaml": configMap("a", "2"), "main/c.yaml": configMap("c", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "c"))).To(Succeed())
		Eventually(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "c"))
		}, soon).Should(BeFalse(), "drift is corrected")
		deleteAndWait(ctx, in)

		all := requestsSince(ctx, mark, cluster.ByUser(controller()), cluster.InNamespace(ns)).Without(cluster.Watch)
		own := func(r cluster.Request) bool { return r.Group == "apps.ksctl.com" || r.Resource == "events" }
		Expect(all.Where(cluster.Write, cluster.ByEffectiveUser(controller()))).NotTo(BeEmpty())
		Expect(all.Where(cluster.Write, cluster.ByEffectiveUser(controller())).Without(own)).
			To(BeEmpty(), "the controller itself writes only its own kinds and events: %s", all)
		Expect(all.Where(cluster.Resource("configmaps")).Without(cluster.ByEffectiveUser(tenant(ns)))).
			To(HaveEach(HaveField("Verb", "get")), "reads that confirm an entry of the index")
		Expect(all.Where(own, cluster.ByEffectiveUser(tenant(ns)))).
			To(BeEmpty(), "the account needs no permission for our kinds")
		tenants := all.Where(cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
		Expect(len(tenants)).To(BeNumerically(">=", 7), "%s", tenants)
	})

	It("falls back to --default-service-account, never to the controller's permissions", func(ctx SpecContext) {
		ns := configMapsOnlyNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		mark := auditMark(ctx)
		none := newInstall(ctx, ns, "none", hourly, withServiceAccount(""))
		reports(ctx, none, "False", "ServiceAccountNotFound", "no service account", "spec.serviceAccountName",
			"--default-service-account")
		Expect(requestsSince(ctx, mark, cluster.ByUser(controller()), cluster.Resource("configmaps"),
			cluster.InNamespace(ns)).Without(cluster.Watch)).To(BeEmpty(), "no request without an account")

		startController(dedicated("default-account"), func(o *manager.Options) { o.DefaultServiceAccount = "standard" })
		sourceForController(ctx, ns, "own", "default-account")
		publish(ctx, ns, "own", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		in := newInstall(ctx, ns, "i", hourly, withServiceAccount(""),
			forController[*appsv1.KsctlInstall]("default-account"), func(in *appsv1.KsctlInstall) {
				in.Spec.SourceRef.Name = "own"
			})
		reports(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/standard does not exist")
		mark = auditMark(ctx)
		serviceAccount(ctx, ns, "standard")
		reports(ctx, in, "False", "ReconciliationFailed", cluster.ServiceAccountUser(ns, "standard"), "forbidden")
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(controller()), cluster.Resource("configmaps"),
			cluster.InNamespace(ns), cluster.Write)).To(BeEmpty())
		commit(ctx, in, withServiceAccount("deployer"))
		atRevision(ctx, in, "main@sha1:1")
	})

	It("refuses a source of another namespace with --no-cross-namespace-refs, without revealing whether "+
		"it exists", func(ctx SpecContext) {
		ns, other := configMapsOnlyNamespace(ctx), configMapsOnlyNamespace(ctx)
		const name = "fenced"
		startController(dedicated(name), func(o *manager.Options) { o.ACL.NoCrossNamespaceRefs = true })
		for _, at := range []string{ns, other} {
			sourceForController(ctx, at, "src", name)
			publish(ctx, at, "src", "main@sha1:1",
				tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		}
		there := func(source string) func(*appsv1.KsctlInstall) {
			return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Namespace, in.Spec.SourceRef.Name = other, source }
		}
		mark := auditMark(ctx)
		for _, source := range []string{"src", "nothing"} {
			in := newInstall(ctx, ns, "refused-"+source, hourly, forController[*appsv1.KsctlInstall](name),
				there(source))
			reports(ctx, in, "False", "AccessDenied",
				fmt.Sprintf("KsctlSource %s/%s is in another namespace", other, source), "--no-cross-namespace-refs")
			Expect(condition(in, "Stalled")).To(HaveField("Reason", "AccessDenied"))
		}
		Expect(requestsSince(ctx, mark, cluster.ByUser(controller()), cluster.InNamespace(other)).
			Without(cluster.Watch)).To(BeEmpty(), "no object of that namespace is read")
		own := newInstall(ctx, ns, "own", hourly, forController[*appsv1.KsctlInstall](name),
			func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Namespace = ns })
		atRevision(ctx, own, "main@sha1:1")

		By("a controller without the flag using the source")
		publish(ctx, other, "open", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		open := newInstall(ctx, ns, "open", hourly, there("open"))
		atRevision(ctx, open, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse())
	})
})
