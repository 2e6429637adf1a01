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
	"github.com/ksctl/gitops/internal/manager"
)

// controller is the user that the controller is.
func controller() string { return cluster.ServiceAccountUser(systemNamespace, account) }

// narrowNamespace makes a namespace whose account may only do ConfigMaps.
func narrowNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "narrow")
	Expect(err).NotTo(HaveOccurred())
	serviceAccount(ctx, ns, "deployer")
	allow(ctx, ns, "configmaps")
	return ns
}

func serviceAccount(ctx context.Context, ns, name string) {
	GinkgoHelper()
	Expect(plane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, name)})).To(Succeed())
}

// allow lets the account deployer of a namespace do everything with resources of the core group.
func allow(ctx context.Context, ns string, resources ...string) {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: named(ns, resources[0]), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"*"}}}}
	Expect(plane.Client().Create(ctx, role)).To(Succeed())
	Expect(plane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named(ns, resources[0]),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: resources[0]},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "deployer"}}})).To(Succeed())
	for _, r := range resources {
		inForce(ctx, ns, "*", r)
	}
}

// inForce waits until the account deployer of a namespace may do something with a
// resource of the core group.
func inForce(ctx context.Context, ns, verb, resource string) {
	GinkgoHelper()
	Expect(plane.AwaitRight(ctx, tenant(ns), authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource})).To(Succeed())
}

func as(name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = name }
}

var aSecret = "apiVersion: v1\nkind: Secret\nmetadata: {name: secret}\nstringData: {a: " + heard.Secret("told-to-nobody") + "}\n"

var _ = Describe("Tenancy", func() {
	It("names what the account may not do, goes on with the rest, and recovers when it is allowed", func(ctx SpecContext) {
		ns := narrowNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("main", "after:main", "other"), map[string]string{
			"main/a.yaml": configMap("a", "1"), "main/s.yaml": aSecret, "after/b.yaml": configMap("after", "1"), "other/c.yaml": configMap("other", "1")}))
		mark, began := marked(ctx), time.Now()
		in := newInstall(ctx, ns, "i", retrying(2*time.Second))
		says(ctx, in, "False", "ReconciliationFailed", `component "main"`, "create Secret "+ns+"/secret", "forbidden", tenant(ns), `cannot patch resource "secrets"`)
		Expect(condition(in, "Reconciling")).To(HaveField("Reason", "ProgressingWithRetry"))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "other"))).To(BeFalse())
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Consistently(ctx, func(g Gomega) {
			tries := since(ctx, mark, cluster.As(tenant(ns)), cluster.Resource("secrets"))
			intervals := int(time.Since(began) / (1800 * time.Millisecond)) // some are shorter than others
			g.Expect(len(tries)).To(BeNumerically("<=", 2+intervals), "one try at each retryInterval")
		}, "3s").Should(Succeed())
		Expect(since(ctx, mark, cluster.As(controller()), cluster.Resource("secrets"), cluster.In(ns), cluster.Write)).To(BeEmpty(), "never with the controller's rights")

		allow(ctx, ns, "secrets")
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("makes no request for an account that does not exist, and goes on when it does", func(ctx SpecContext) {
		ns := narrowNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		mark := marked(ctx)
		in := newInstall(ctx, ns, "i", hourly, as("ghost"))
		says(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/ghost does not exist")
		ghost := cluster.ServiceAccountUser(ns, "ghost")
		Expect(since(ctx, mark, cluster.As(ghost))).To(BeEmpty())
		Expect(since(ctx, mark, cluster.As(controller()), cluster.Resource("configmaps"), cluster.In(ns))).To(BeEmpty(), "nor one with the controller's rights")
		serviceAccount(ctx, ns, "ghost")
		says(ctx, in, "False", "ReconciliationFailed", ghost, `cannot patch resource "configmaps"`)

		commit(ctx, in, as("deployer"))
		atRevision(ctx, in, "main@sha1:1")

		By("the account being deleted")
		mark = marked(ctx)
		Expect(plane.Client().Delete(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "deployer")})).To(Succeed())
		says(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/deployer does not exist")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, "1s").Should(BeTrue(), "RBAC would still let the name do it")
		Expect(since(ctx, mark, cluster.As(tenant(ns)))).To(BeEmpty())
		serviceAccount(ctx, ns, "deployer")
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
	})

	It("writes as the account and nobody else, from the first object to the last", func(ctx SpecContext) {
		ns := narrowNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1"), "main/b.yaml": configMap("b", "1")}))
		Expect(plane.Client().Create(ctx, aConfigMap(ns, "b"))).To(Succeed(), "one to adopt")
		mark := marked(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "2"), "main/c.yaml": configMap("c", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "c"))).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, aConfigMap(ns, "c")) }, soon).Should(BeFalse(), "drift is corrected")
		removed(ctx, in)

		all := since(ctx, mark, cluster.By(controller()), cluster.In(ns)).Without(cluster.Watch)
		own := func(r cluster.Request) bool { return r.Group == "apps.ksctl.com" || r.Resource == "events" }
		Expect(all.Where(cluster.Write, cluster.As(controller()))).NotTo(BeEmpty())
		Expect(all.Where(cluster.Write, cluster.As(controller())).Without(own)).To(BeEmpty(), "as itself it writes its own kinds and events: %s", all)
		Expect(all.Where(cluster.Resource("configmaps")).Without(cluster.As(tenant(ns)))).To(HaveEach(HaveField("Verb", "get")), "what confirms a hint of the index")
		Expect(all.Where(own, cluster.As(tenant(ns)))).To(BeEmpty(), "the account needs no right to our kinds")
		tenants := all.Where(cluster.As(tenant(ns)), cluster.Write)
		Expect(len(tenants)).To(BeNumerically(">=", 7), "%s", tenants)
	})

	It("falls back to --default-service-account, never to the controller's rights", func(ctx SpecContext) {
		ns := narrowNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		mark := marked(ctx)
		none := newInstall(ctx, ns, "none", hourly, as(""))
		says(ctx, none, "False", "ServiceAccountNotFound", "no service account", "spec.serviceAccountName", "--default-service-account")
		Expect(since(ctx, mark, cluster.By(controller()), cluster.Resource("configmaps"), cluster.In(ns)).Without(cluster.Watch)).To(BeEmpty(), "no request without an account")

		startController(alone("default-account"), func(o *manager.Options) { o.DefaultServiceAccount = "standard" })
		ownSource(ctx, ns, "own", "default-account")
		publish(ctx, ns, "own", "main@sha1:1", tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		in := newInstall(ctx, ns, "i", hourly, as(""), leftTo[*appsv1.KsctlInstall]("default-account"), func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = "own" })
		says(ctx, in, "False", "ServiceAccountNotFound", "ServiceAccount "+ns+"/standard does not exist")
		mark = marked(ctx)
		serviceAccount(ctx, ns, "standard")
		says(ctx, in, "False", "ReconciliationFailed", cluster.ServiceAccountUser(ns, "standard"), "forbidden")
		Expect(since(ctx, mark, cluster.As(controller()), cluster.Resource("configmaps"), cluster.In(ns), cluster.Write)).To(BeEmpty())
		commit(ctx, in, as("deployer"))
		atRevision(ctx, in, "main@sha1:1")
	})

	It("refuses a source of another namespace under --no-cross-namespace-refs, without saying whether there is one", func(ctx SpecContext) {
		ns, other := narrowNamespace(ctx), narrowNamespace(ctx)
		const name = "fenced"
		startController(alone(name), func(o *manager.Options) { o.ACL.NoCrossNamespaceRefs = true })
		for _, at := range []string{ns, other} {
			ownSource(ctx, at, "src", name)
			publish(ctx, at, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		}
		there := func(source string) func(*appsv1.KsctlInstall) {
			return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Namespace, in.Spec.SourceRef.Name = other, source }
		}
		mark := marked(ctx)
		for _, source := range []string{"src", "nothing"} {
			in := newInstall(ctx, ns, "refused-"+source, hourly, leftTo[*appsv1.KsctlInstall](name), there(source))
			says(ctx, in, "False", "AccessDenied", fmt.Sprintf("KsctlSource %s/%s is in another namespace", other, source), "--no-cross-namespace-refs")
			Expect(condition(in, "Stalled")).To(HaveField("Reason", "AccessDenied"))
		}
		Expect(since(ctx, mark, cluster.By(controller()), cluster.In(other)).Without(cluster.Watch)).To(BeEmpty(), "nothing of that namespace is read")
		own := newInstall(ctx, ns, "own", hourly, leftTo[*appsv1.KsctlInstall](name), func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Namespace = ns })
		atRevision(ctx, own, "main@sha1:1")

		By("a controller without the flag taking it")
		publish(ctx, other, "open", "main@sha1:1", tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		open := newInstall(ctx, ns, "open", hourly, there("open"))
		atRevision(ctx, open, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse())
	})
})
