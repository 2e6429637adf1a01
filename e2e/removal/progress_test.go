package removal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

func uidOf(ctx SpecContext, ns, name string) types.UID {
	GinkgoHelper()
	cm := aConfigMap(ns, name)
	Expect(get(ctx, cm)).To(Succeed())
	return cm.UID
}

var _ = Describe("Two installs that swap objects", suite.Safety, func() {
	It("of one source hand both over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := configMap("a", "1"), configMap("b", "1")
		publishTwoStacks(ctx, ns, "r1", []string{a}, []string{b})
		one, other := install(ctx, ns, "one", fromStack("one")), install(ctx, ns, "other", fromStack("other"))
		becomesReady(ctx, one, other)
		before := []types.UID{uidOf(ctx, ns, "a"), uidOf(ctx, ns, "b")}
		publishTwoStacks(ctx, ns, "r2", []string{b}, []string{a})
		reports(ctx, one, "True", "", "r2")
		reports(ctx, other, "True", "", "r2")
		Expect([]types.UID{uidOf(ctx, ns, "a"), uidOf(ctx, ns, "b")}).To(Equal(before))
		remove(ctx, one, other)
		awaitGone(ctx, one, other, aConfigMap(ns, "a"), aConfigMap(ns, "b"))
	})

	It("of two sources hand both over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := configMap("a", "1"), configMap("b", "1")
		publish(ctx, ns, "one", "r1", a)
		publish(ctx, ns, "other", "r1", b)
		one, other := install(ctx, ns, "one"), install(ctx, ns, "other")
		becomesReady(ctx, one, other)
		before := []types.UID{uidOf(ctx, ns, "a"), uidOf(ctx, ns, "b")}
		publish(ctx, ns, "one", "r2", b)
		reports(ctx, one, "False", appsv1.OwnedByAnotherReason, "KsctlInstall "+ns+"/other")
		publish(ctx, ns, "other", "r2", a)
		reports(ctx, one, "True", "", "r2")
		reports(ctx, other, "True", "", "r2")
		Expect([]types.UID{uidOf(ctx, ns, "a"), uidOf(ctx, ns, "b")}).To(Equal(before))
		remove(ctx, one, other)
		awaitGone(ctx, one, other, aConfigMap(ns, "a"), aConfigMap(ns, "b"))
	})

	It("hand over only what the account of the other one may change", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "limited")})).
			To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, &rbacv1.Role{ObjectMeta: objectMeta(ns, "limited"),
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
				Verbs: []string{"get", "list", "create", "delete"}}}})).To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, "limited"),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "limited"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "limited"}}})).To(Succeed())
		a, b := configMap("a", "1"), configMap("b", "1")
		publish(ctx, ns, "one", "r1", a, b)
		publish(ctx, ns, "limited", "r1", b)
		one := install(ctx, ns, "one")
		becomesReady(ctx, one)
		limited := install(ctx, ns, "limited", func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = "limited" })
		reports(ctx, limited, "False", "")
		publish(ctx, ns, "one", "r2", a)
		reports(ctx, one, "True", "", "r2")
		awaitGone(ctx, aConfigMap(ns, "b"))
		remove(ctx, one, limited)
		awaitGone(ctx, one, limited)
	})
})

var _ = Describe("An install that depends on one with a removed object", suite.Safety, func() {
	It("does not block its removal", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b, c := configMap("a", "1"), configMap("b", "1"), configMap("c", "1")
		publishTwoStacks(ctx, ns, "r1", []string{a, b}, []string{c})
		base := install(ctx, ns, "base", fromStack("one"))
		becomesReady(ctx, base)
		publishTwoStacks(ctx, ns, "r2", []string{"kind: broken"}, []string{c})
		reports(ctx, base, "False", "InvalidStack")
		app := install(ctx, ns, "app", fromStack("other"), dependingOn("base"))
		reports(ctx, app, "Unknown", "DependencyNotReady", ns+"/base")
		publishTwoStacks(ctx, ns, "r3", []string{a}, []string{c})
		reports(ctx, base, "True", "", "r3")
		reports(ctx, app, "True", "", "r3")
		awaitGone(ctx, aConfigMap(ns, "b"))
		remove(ctx, base, app)
		awaitGone(ctx, base, app)
	})

	It("gets the object if its plan has it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b, c := configMap("a", "1"), configMap("b", "1"), configMap("c", "1")
		publishTwoStacks(ctx, ns, "r1", []string{a, b}, []string{c})
		base := install(ctx, ns, "base", fromStack("one"))
		becomesReady(ctx, base)
		before := uidOf(ctx, ns, "b")
		publishTwoStacks(ctx, ns, "r2", []string{"kind: broken"}, []string{c, b})
		reports(ctx, base, "False", "InvalidStack")
		app := install(ctx, ns, "app", fromStack("other"), dependingOn("base"))
		reports(ctx, app, "Unknown", "DependencyNotReady", ns+"/base")
		publishTwoStacks(ctx, ns, "r3", []string{a}, []string{c, b})
		reports(ctx, base, "True", "", "r3")
		reports(ctx, app, "True", "", "r3")
		Expect(uidOf(ctx, ns, "b")).To(Equal(before))
		remove(ctx, base, app)
		awaitGone(ctx, base, app, aConfigMap(ns, "b"))
	})

	It("and whose chart reads the kinds of the cluster keeps the object until it is planned", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := func(names ...string) map[string]string {
			out := map[string]string{
				"stacks/one/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: " +
					"{name: one}\n" + harness.OneComponent,
				"stacks/other/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: other}\n" +
					"spec:\n  version: 1.0.0\n  components:\n  - {name: main, helm: {chart: ./chart}}\n",
				"stacks/other/chart/Chart.yaml": "apiVersion: v2\nname: other\nversion: 1.0.0\n",
				"stacks/other/chart/templates/c.yaml": configMap("c", "1") +
					"---\n{{ if .Capabilities.APIVersions.Has \"gone.example.com/v1\" }}\n" + configMap("b", "1") +
					"{{ end }}\n",
			}
			for _, n := range names {
				out["stacks/one/main/"+n+".yaml"] = configMap(n, "1")
			}
			return out
		}
		Expect(h.PublishSource(ctx, ns, "src", "r1", artifacts.Files(files("a", "b")))).To(Succeed())
		base := install(ctx, ns, "base", fromStack("one"))
		becomesReady(ctx, base)
		broken := files("a")
		broken["stacks/one/main/a.yaml"] = "kind: broken"
		Expect(h.PublishSource(ctx, ns, "src", "r2", artifacts.Files(broken))).To(Succeed())
		reports(ctx, base, "False", "InvalidStack")
		app := install(ctx, ns, "app", fromStack("other"), dependingOn("base"))
		reports(ctx, app, "Unknown", "DependencyNotReady", ns+"/base")
		Expect(h.PublishSource(ctx, ns, "src", "r3", artifacts.Files(files("a")))).To(Succeed())
		reports(ctx, base, "True", "", "r3")
		reports(ctx, app, "True", "", "r3")
		awaitGone(ctx, aConfigMap(ns, "b"))
		remove(ctx, base, app)
		awaitGone(ctx, base, app)
	})

	It("and cannot be rendered keeps it for its timeout", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := configMap("a", "1"), configMap("b", "1")
		publishTwoStacks(ctx, ns, "r1", []string{a, b}, []string{"kind: broken"})
		base := install(ctx, ns, "base", fromStack("one"))
		app := install(ctx, ns, "app", fromStack("other"), func(in *appsv1.KsctlInstall) {
			in.Spec.Timeout = &metav1.Duration{Duration: 30 * time.Second}
		})
		becomesReady(ctx, base)
		reports(ctx, app, "False", "InvalidStack")
		publishTwoStacks(ctx, ns, "r2", []string{a}, []string{"kind: broken"})
		reports(ctx, base, "Unknown", "",
			"KsctlInstall "+ns+"/app, which may claim them, has planned the same revision")
		reports(ctx, base, "True", "", "r2", "left in place until KsctlInstall "+ns+"/app")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse())
		publishTwoStacks(ctx, ns, "r3", []string{a}, []string{configMap("c", "1")})
		reports(ctx, app, "True", "", "r3")
		awaitGone(ctx, aConfigMap(ns, "b"))
		remove(ctx, base, app)
		awaitGone(ctx, base, app)
	})
})

var _ = Describe("Installs that wait for each other", func() {
	It("report the whole cycle, and go on when it ends", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		base, app := installConfigMap(ctx, ns, "base"), installConfigMap(ctx, ns, "app", dependingOn("base"))
		becomesReady(ctx, base, app)
		remove(ctx, base)
		reports(ctx, base, "Unknown", appsv1.DependentsExistReason, "KsctlInstall "+ns+"/app")
		Expect(base.Status.WaitsFor).
			To(Equal([]appsv1.WaitReference{{Type: appsv1.WaitDependents, Kind: "KsctlInstall", Namespace: ns,
				Name: "app"}}))
		publish(ctx, ns, "app", "r2", configMap("app", "2"))
		cycle := fmt.Sprintf("wait cycle: KsctlInstall %[1]s/app waits for KsctlInstall %[1]s/base (DependsOn), "+
			"KsctlInstall %[1]s/base waits for KsctlInstall %[1]s/app (Dependents)", ns)
		reports(ctx, app, "False", appsv1.WaitCycleReason, cycle, "is being removed")
		reports(ctx, base, "False", appsv1.WaitCycleReason, cycle, "remove base from its spec.dependsOn")
		Expect(app.Status.WaitsFor).
			To(Equal([]appsv1.WaitReference{{Type: appsv1.WaitDependsOn, Kind: "KsctlInstall", Namespace: ns,
				Name: "base"}}))
		mergePatch(ctx, app, `{"spec":{"dependsOn":null}}`)
		awaitGone(ctx, base)
		reports(ctx, app, "True", "", "r2")
		Expect(app.Status.WaitsFor).To(BeEmpty())
		remove(ctx, app)
		awaitGone(ctx, app)
	})

	It("name what a component waits for", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.PublishSource(ctx, ns, "a", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: one, manifests: [one/]}\n  - {name: two, manifests: [two/], dependsOn: [one]}\n",
			map[string]string{"one/j.yaml": jobManifest("endless", cluster.FateNeverEnds, ""),
				"one/w.yaml": "apiVersion: absent.example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
				"two/b.yaml": configMap("b", "1")}))).To(Succeed())
		a := install(ctx, ns, "a")
		reports(ctx, a, "Unknown", "Progressing", "Job "+ns+"/endless")
		Expect(a.Status.WaitsFor).To(ContainElements(
			appsv1.WaitReference{Type: appsv1.WaitKindNotServed, Kind: "CustomResourceDefinition",
				Name: "Widget.absent.example.com", Object: "Widget " + ns + "/w"},
			appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: "Job", Namespace: ns, Name: "endless"},
			appsv1.WaitReference{Type: appsv1.WaitOrder, Kind: "ConfigMap", Namespace: ns, Name: "b"}))
		remove(ctx, a)
		awaitGone(ctx, a)
	})
})

var _ = Describe("An install that lacks something", func() {
	const atOnce = 10 * time.Second // without an event, the next retry is after 30 s
	becomesReadyAtOnce := func(ctx SpecContext, in *appsv1.KsctlInstall) {
		GinkgoHelper()
		began := time.Now()
		defer func() { AddReportEntry("ready after", time.Since(began)) }()
		Eventually(ctx, func() string {
			Expect(get(ctx, in)).To(Succeed())
			return string(harness.ReadyCondition(in).Status) + ": " + harness.ReadyCondition(in).Message
		}, atOnce, 20*time.Millisecond).Should(HavePrefix("True"))
	}
	limited := func(ctx SpecContext, ns string) *appsv1.KsctlInstall {
		GinkgoHelper()
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "limited")})).
			To(Succeed())
		publish(ctx, ns, "app", "r1", configMap("a", "1"))
		in := install(ctx, ns, "app", func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = "limited" })
		reports(ctx, in, "False", "", "is forbidden")
		return in
	}
	subject := func(ns string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "limited"}}
	}

	It("continues when a role is bound in its namespace", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := limited(ctx, ns)
		Expect(h.ControlPlane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, "edit"),
			Subjects: subject(ns),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}})).To(Succeed())
		becomesReadyAtOnce(ctx, in)
		remove(ctx, in)
		awaitGone(ctx, in)
	})

	It("continues when a bound role gets a rule", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		role := &rbacv1.ClusterRole{ObjectMeta: objectMeta("", ns)}
		Expect(h.ControlPlane.Client().Create(ctx, role)).To(Succeed())
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta("", ns), Subjects: subject(ns),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns}}
		Expect(h.ControlPlane.Client().Create(ctx, binding)).To(Succeed())
		in := limited(ctx, ns)
		mergePatch(ctx, role, `{"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]}]}`)
		becomesReadyAtOnce(ctx, in)
		remove(ctx, in)
		awaitGone(ctx, in)
		remove(ctx, binding, role)
	})

	It("continues when the namespace of an object is created", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "app", "r1",
			strings.Replace(configMap("a", "1"), "name: ", "namespace: "+ns+"-late, name: ", 1))
		in := install(ctx, ns, "app")
		reports(ctx, in, "False", "", "namespaces \""+ns+"-late\" not found")
		late := &corev1.Namespace{ObjectMeta: objectMeta("", ns+"-late")}
		Expect(h.ControlPlane.Client().Create(ctx, late)).To(Succeed())
		becomesReadyAtOnce(ctx, in)
		remove(ctx, in)
		awaitGone(ctx, in)
		remove(ctx, late)
	})

	It("continues when a Secret with its values is created", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.PublishSource(ctx, ns, "app", "r1", harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
			"{name: web, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml":        chartFiles["Chart.yaml"],
			"chart/templates/cm.yaml": chartFiles["templates/greeting.yaml"]}))).To(Succeed())
		in := install(ctx, ns, "app", func(in *appsv1.KsctlInstall) {
			in.Spec.ValuesFrom = []appsv1.ValuesReference{{Component: "web", Kind: "Secret", Name: "late"}}
		})
		reports(ctx, in, "False", "", "the object does not exist")
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: objectMeta(ns, "late"),
			StringData: map[string]string{"values.yaml": "greeting: hello"}})).To(Succeed())
		becomesReadyAtOnce(ctx, in)
		remove(ctx, in)
		awaitGone(ctx, in)
	})

	It("continues when its account is created", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "app", "r1", configMap("a", "1"))
		in := install(ctx, ns, "app", func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = "limited" })
		reports(ctx, in, "False", "ServiceAccountNotFound")
		Expect(h.ControlPlane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, "edit"),
			Subjects: subject(ns),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}})).To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "limited")})).
			To(Succeed())
		becomesReadyAtOnce(ctx, in)
		remove(ctx, in)
		awaitGone(ctx, in)
	})
})

var _ = Describe("A namespace with an install that is deleted", suite.Safety, func() {
	inNamespace := func(ns, name string) string {
		return strings.Replace(configMap(name, "1"), "name: ", "namespace: "+ns+", name: ", 1)
	}
	namespace := func(name string) *corev1.Namespace { return &corev1.Namespace{ObjectMeta: objectMeta("", name)} }

	It("goes with the objects of the install elsewhere", func(ctx SpecContext) {
		ns, elsewhere := namespaceFor(ctx), namespaceFor(ctx)
		role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + ns +
			"-made}\nrules: []\n"
		publish(ctx, ns, "app", "r1", configMap("a", "1"), inNamespace(elsewhere, "b"), role)
		app := install(ctx, ns, "app")
		becomesReady(ctx, app)
		Expect(app.Status.ServiceAccount).NotTo(BeNil())
		remove(ctx, namespace(ns))
		awaitGone(ctx, app, namespace(ns), aConfigMap(elsewhere, "b"),
			&rbacv1.ClusterRole{ObjectMeta: objectMeta("", ns+"-made")})
	})

	It("keeps an inventory in chunks until its objects are gone", func(ctx SpecContext) {
		ns, elsewhere := namespaceFor(ctx), namespaceFor(ctx)
		var docs []string
		for i := range 1100 {
			docs = append(docs, inNamespace(elsewhere, fmt.Sprintf("c%04d", i)))
		}
		publish(ctx, ns, "app", "r1", strings.Join(docs, "---\n"))
		app := install(ctx, ns, "app")
		becomesReady(ctx, app)
		remove(ctx, namespace(ns))
		awaitGone(ctx, app, namespace(ns))
		Expect(countConfigMaps(ctx, elsewhere)).To(BeZero())
	})

	It("releases what a KsctlRemove has not removed yet", func(ctx SpecContext) {
		ns, elsewhere := namespaceFor(ctx), namespaceFor(ctx)
		inside, outside := inNamespace(ns, "a"), inNamespace(elsewhere, "b")
		publish(ctx, ns, "src", "r1", inside, outside)
		for _, doc := range []string{inside, outside} {
			kubectl(ctx, "", doc, "apply", "-f", "-")
		}
		b := aConfigMap(elsewhere, "b")
		mergePatch(ctx, b, `{"metadata":{"annotations":{"`+live.PreventDeletionAnnotation+`":"true"}}}`)
		rm := newRemoveBySource(ctx, ns, "rm")
		approve(ctx, rm, awaitPreview(ctx, rm, 2))
		removeBySourceReports(ctx, rm, metav1.ConditionUnknown, "Removing", live.PreventDeletionAnnotation)
		remove(ctx, namespace(ns))
		awaitGone(ctx, rm, namespace(ns))
		Expect(get(ctx, b)).To(Succeed())
		Expect(b.Annotations).NotTo(HaveKey(live.MarkAnnotation))
	})

	It("names what the remaining permissions do not allow, and how to end it", func(ctx SpecContext) {
		ns, elsewhere := namespaceFor(ctx), namespaceFor(ctx)
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(ns, "limited")})).
			To(Succeed())
		binding := &rbacv1.RoleBinding{ObjectMeta: objectMeta(elsewhere, "edit"),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "limited"}}}
		Expect(h.ControlPlane.Client().Create(ctx, binding)).To(Succeed())
		publish(ctx, ns, "app", "r1", inNamespace(elsewhere, "b"))
		app := install(ctx, ns, "app", func(in *appsv1.KsctlInstall) { in.Spec.ServiceAccountName = "limited" })
		becomesReady(ctx, app)
		remove(ctx, binding)
		remove(ctx, namespace(ns))
		command := fmt.Sprintf("kubectl annotate ksctlinstall app --namespace %s %s=%s", ns, appsv1.AbandonAnnotation,
			app.UID)
		reports(ctx, app, "Unknown", "Removing", "ConfigMap "+elsewhere+"/b", "forbidden", command)
		Expect(absent(ctx, aConfigMap(elsewhere, "b"))).To(BeFalse())
		mergePatch(ctx, app, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, app.UID))
		awaitGone(ctx, app, namespace(ns))
		Expect(absent(ctx, aConfigMap(elsewhere, "b"))).To(BeFalse())
	})
})

var _ = Describe("A stack that contradicts itself", suite.Safety, func() {
	installManifest := func(name, source string) string {
		spec := harness.NewInstall("x", "x").Spec
		return fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: KsctlInstall\nmetadata: {name: %s}\nspec: "+
			"{sourceRef: {kind: %s, name: %s}, path: %q, stack: %s, serviceAccountName: %s}\n",
			name, spec.SourceRef.Kind, source, spec.Path, spec.Stack, spec.ServiceAccountName)
	}

	It("with its own install is applied without it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "self", "r1", configMap("a", "1"), installManifest("self", "self"))
		self := install(ctx, ns, "self")
		reports(ctx, self, "False", appsv1.InvalidObjectReason, "KsctlInstall "+ns+"/self applies this stack")
		Expect(uidOf(ctx, ns, "a")).NotTo(BeEmpty())
		Expect(self.Status.Inventory.Entries).To(HaveLen(1))
		publish(ctx, ns, "self", "r2", configMap("a", "1"))
		reports(ctx, self, "True", "", "r2")
		remove(ctx, self)
		awaitGone(ctx, self, aConfigMap(ns, "a"))
	})

	It("with the install that created its own is applied without it, and both can be removed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "parent", "r1", configMap("a", "1"), installManifest("child", "child"))
		publish(ctx, ns, "child", "r1", configMap("b", "1"), installManifest("parent", "parent"))
		parent, child := install(ctx, ns, "parent"), harness.NewInstall(ns, "child")
		reports(ctx, child, "False", appsv1.InvalidObjectReason, "KsctlInstall "+ns+"/parent created KsctlInstall "+ns+
			"/child")
		Expect(uidOf(ctx, ns, "b")).NotTo(BeEmpty())
		remove(ctx, parent)
		awaitGone(ctx, parent, child, aConfigMap(ns, "a"), aConfigMap(ns, "b"))
	})

	It("and has recorded the install that created its own releases it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "parent", "r1", configMap("a", "1"), installManifest("child", "child"))
		publish(ctx, ns, "child", "r1", configMap("b", "1"))
		parent := install(ctx, ns, "parent")
		becomesReady(ctx, parent)
		child := harness.NewInstall(ns, "child")
		becomesReady(ctx, child)

		By("recording the parent as an object of the child, like an earlier version")
		suspend(ctx, child)
		Expect(get(ctx, parent)).To(Succeed())
		cm := aConfigMap(ns, "b")
		Expect(get(ctx, cm)).To(Succeed())
		mark, err := live.ParseMark(cm.Annotations[live.MarkAnnotation])
		Expect(err).NotTo(HaveOccurred())
		mark.ID = ns + "_parent_apps.ksctl.com_KsctlInstall"
		Expect(get(ctx, child)).To(Succeed())
		child.Status.Inventory.Entries = append(child.Status.Inventory.Entries,
			appsv1.InventoryEntry{ID: mark.ID, Version: "v1", UID: parent.UID, Component: "main",
				State: appsv1.EntryApplied, Hash: "x"})
		Expect(h.ControlPlane.Client().Status().Update(ctx, child)).To(Succeed())
		mergePatch(ctx, parent, fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`,
			live.OwnerLabel, cm.Labels[live.OwnerLabel], live.MarkAnnotation, mark.String()))
		mergePatch(ctx, child, `{"spec":{"suspend":false}}`)

		By("removing both")
		remove(ctx, parent)
		awaitGone(ctx, parent)
		remove(ctx, child)
		awaitGone(ctx, child, aConfigMap(ns, "a"), aConfigMap(ns, "b"))
	})

	It("with a KsctlRemove of its own install is applied without it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		removal := "apiVersion: apps.ksctl.com/v1\nkind: KsctlRemove\nmetadata: {name: undo}\n" +
			"spec:\n  installRef: {name: self}\n  serviceAccountName: x\n"
		publish(ctx, ns, "self", "r1", configMap("a", "1"), removal)
		self := install(ctx, ns, "self")
		reports(ctx, self, "False", appsv1.InvalidObjectReason, "KsctlRemove "+ns+"/undo: the removal of KsctlInstall "+
			ns+"/self")
		Expect(uidOf(ctx, ns, "a")).NotTo(BeEmpty())
		remove(ctx, self)
		awaitGone(ctx, self, aConfigMap(ns, "a"))
	})

	It("with a definition of this controller's kinds never deletes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		name := "ksctlremoves.apps.ksctl.com"
		crd, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "apps.ksctl.com_ksctlremoves.yaml"))
		Expect(err).NotTo(HaveOccurred())
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		definition.SetName(name)
		Expect(get(ctx, definition)).To(Succeed())
		before := definition.GetUID()
		publish(ctx, ns, "crds", "r1", configMap("a", "1"), string(crd))
		crds := install(ctx, ns, "crds", func(in *appsv1.KsctlInstall) { in.Spec.Adopt = appsv1.AdoptAlways })
		becomesReady(ctx, crds)
		publish(ctx, ns, "crds", "r2", configMap("a", "1"))
		reports(ctx, crds, "True", "", "r2")
		Expect(get(ctx, definition)).To(Succeed())
		Expect(definition.GetAnnotations()).NotTo(HaveKey(live.MarkAnnotation), "it is released")
		publish(ctx, ns, "crds", "r3", configMap("a", "1"), string(crd))
		reports(ctx, crds, "True", "", "r3")
		remove(ctx, crds)
		awaitGone(ctx, crds)
		Expect(get(ctx, definition)).To(Succeed())
		Expect(definition.GetUID()).To(Equal(before))
		Expect(definition.GetDeletionTimestamp()).To(BeNil())
	})
})
