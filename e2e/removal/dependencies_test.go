package removal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("Installs that depend on other installs", func() {
	It("start when these are ready, delay a change while one is not, and keep their objects "+
		"meanwhile", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		b := installConfigMap(ctx, ns, "b", dependingOn("a"))
		c := installConfigMap(ctx, ns, "c", dependingOn("b"))
		reports(ctx, b, metav1.ConditionUnknown, "DependencyNotReady", "KsctlInstall "+ns+"/a does not exist")
		reports(ctx, c, metav1.ConditionUnknown, "DependencyNotReady", ns+"/b")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue())
		a := installConfigMap(ctx, ns, "a")
		becomesReady(ctx, a, b, c)

		By("a failing dependency delays a change")
		publish(ctx, ns, "a", "r2", "apiVersion: apps/v1\nkind: Nothing\nmetadata: {name: a}\n")
		reports(ctx, a, metav1.ConditionFalse, "")
		cm := aConfigMap(ns, "b")
		value := func() string {
			Expect(get(ctx, cm)).To(Succeed())
			return cm.Data["value"]
		}
		mergePatch(ctx, aConfigMap(ns, "b"), `{"data":{"value":"drifted"}}`)
		Eventually(ctx, value, soon, "20ms").Should(Equal("1"), "drift is still corrected")
		last := publishUntilDelayed(ctx, b, "KsctlInstall "+ns+"/a is not ready: ")
		Expect("r" + value()).To(Equal(last))

		By("continuing when the dependency is ready")
		publish(ctx, ns, "a", "r3", configMap("a", "3"))
		becomesReady(ctx, a, b, c)
		Expect("r" + value()).To(Equal(b.Status.LastAppliedRevision))
		Expect(b.Status.LastAppliedRevision).NotTo(Equal(last))
		remove(ctx, a, b, c)
		awaitGone(ctx, a, b, c)
	})

	It("report a suspended dependency, and a cycle", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installConfigMap(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true })
		b := installConfigMap(ctx, ns, "b", dependingOn("a"))
		reports(ctx, b, metav1.ConditionUnknown, "DependencyNotReady", ns+"/a", "suspended")
		mergePatch(ctx, a, `{"spec":{"suspend":false,"dependsOn":[{"name":"c"}]}}`)
		c := installConfigMap(ctx, ns, "c", dependingOn("b"))
		for _, in := range []*appsv1.KsctlInstall{a, b, c} {
			reports(ctx, in, metav1.ConditionFalse, "DependencyCycle", ns+"/a", ns+"/b", ns+"/c", "→")
		}
		mergePatch(ctx, a, `{"spec":{"dependsOn":null}}`)
		becomesReady(ctx, a, b, c)
		By("a cycle that arises later does not block removals")
		mergePatch(ctx, a, `{"spec":{"dependsOn":[{"name":"c"}]}}`)
		reports(ctx, a, metav1.ConditionFalse, "DependencyCycle")
		remove(ctx, a, b, c)
		awaitGone(ctx, a, b, c)
	})

	It("may depend on any kind, which is read as the service account", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := installConfigMap(ctx, ns, "a", func(in *appsv1.KsctlInstall) {
			in.Spec.DependsOn = []appsv1.Dependency{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "switch", ReadyExpr: "self.data.on == 'yes'"},
				{APIVersion: "v1", Kind: "Namespace", Name: "kube-system"},
			}
		})
		reports(ctx, a, metav1.ConditionUnknown, "DependencyNotReady", "ConfigMap "+ns+"/switch does not exist")
		cm := aConfigMap(ns, "switch")
		cm.Data = map[string]string{"on": "no"}
		Expect(h.ControlPlane.Client().Create(ctx, cm)).To(Succeed())
		reports(ctx, a, metav1.ConditionUnknown, "DependencyNotReady",
			"ConfigMap "+ns+"/switch is InProgress: readyExpr is false")
		mergePatch(ctx, cm, `{"data":{"on":"yes"}}`)
		becomesReady(ctx, a)

		By("a deleted dependency is reported, and delays a change until it exists again")
		remove(ctx, cm)
		last := publishUntilDelayed(ctx, a, "ConfigMap "+ns+"/switch does not exist")
		cm = aConfigMap(ns, "switch")
		cm.Data = map[string]string{"on": "yes"}
		Expect(h.ControlPlane.Client().Create(ctx, cm)).To(Succeed())
		becomesReady(ctx, a)
		Expect(a.Status.LastAppliedRevision).NotTo(Equal(last))

		By("a reconcile without a change makes no request")
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		mergePatch(ctx, a, `{"metadata":{"annotations":{"`+appsv1.RequestedAtAnnotation+`":"now"}}}`)
		Eventually(ctx, func() string { _ = get(ctx, a); return a.Status.LastHandledReconcileAt }, soon, "20ms").
			Should(Equal("now"))
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.ByEffectiveUser(cluster.ServiceAccountUser(ns, "deployer")))).To(BeEmpty())

		By("invalid dependencies are reported")
		mergePatch(ctx, a,
			`{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":"switch","readyExpr":"self.data.on =="}]}}`)
		reports(ctx, a, metav1.ConditionFalse, "InvalidDependency", "dependsOn[0]", "readyExpr")
		mergePatch(ctx, a,
			`{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"Namespace","name":"kube-system","namespace":"x"}]}}`)
		reports(ctx, a, metav1.ConditionFalse, "InvalidDependency", "remove namespace")
		mergePatch(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"example.com/v1","kind":"Nothing","name":"x"}]}}`)
		reports(ctx, a, metav1.ConditionTrue, "") // the installed objects are unchanged
		publish(ctx, ns, "a", "another", configMap("a", "another"))
		reports(ctx, a, metav1.ConditionUnknown, "DependencyNotReady", "Nothing "+ns+"/x")
		remove(ctx, a)
		awaitGone(ctx, a)
	})

	It("are rejected at admission for another kind without an apiVersion, and for a readyExpr of "+
		"a Secret", func(ctx SpecContext) {
		for says, d := range map[string]appsv1.Dependency{
			"set apiVersion and kind": {Kind: "ConfigMap", Name: "a"},
			"kind together":           {APIVersion: "v1", Name: "a"},
			"not allowed for Secrets": {APIVersion: "v1", Kind: "Secret", Name: "a", ReadyExpr: "true"},
			"name":                    {APIVersion: "v1", Kind: "ConfigMap"},
		} {
			_, err := dryRunInstall(ctx, d)
			Expect(err).To(MatchError(ContainSubstring(says)))
		}
		_, err := dryRunInstall(ctx, appsv1.Dependency{Name: "a"})
		Expect(err).NotTo(HaveOccurred())
		_, err = dryRunInstall(ctx, appsv1.Dependency{Kind: "KsctlInstall", Name: "a"})
		Expect(err).NotTo(HaveOccurred())
	})

	It("are removed before these, which report that they wait for them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := installConfigMap(ctx, ns, "a"), installConfigMap(ctx, ns, "b", dependingOn("a"))
		becomesReady(ctx, a, b)
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/b, which is not being removed",
			"dependsOn")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, quiet, "200ms").Should(BeFalse())
		By("removing it from dependsOn unblocks the removal")
		mergePatch(ctx, b, `{"spec":{"dependsOn":null}}`)
		awaitGone(ctx, a, aConfigMap(ns, "a"))
		becomesReady(ctx, b)
		remove(ctx, b)
		awaitGone(ctx, b)
	})

	It("are removed in the right order when 200 of them are deleted at once", func(ctx SpecContext) {
		const n = 200
		ns := namespaceFor(ctx)
		all := map[string]*appsv1.KsctlInstall{}
		needs := map[string][]string{}
		random := rand.New(rand.NewPCG(seed(), 0))
		for i := range n {
			name := fmt.Sprintf("i%03d", i)
			for range min(i, random.IntN(4)) {
				needs[name] = append(needs[name], fmt.Sprintf("i%03d", random.IntN(i)))
			}
			all[name] = installConfigMap(ctx, ns, name, dependingOn(needs[name]...))
		}
		awaitNone(ctx, ns, func(in *appsv1.KsctlInstall) bool {
			return harness.ReadyCondition(in).Status != metav1.ConditionTrue
		}, "all are installed")
		for _, in := range all {
			becomesReady(ctx, in)
		}
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(ns))).To(Succeed())
		awaitNone(ctx, ns, func(*appsv1.KsctlInstall) bool { return true }, "all are removed")
		for _, in := range all {
			awaitGone(ctx, in, aConfigMap(ns, in.Name))
		}
		AddReportEntry("removal", fmt.Sprintf("%d in %s", n, time.Since(began).Round(time.Millisecond)),
			ReportEntryVisibilityAlways)
		expectDeletionOrder(ctx, ns, mark, needs)
	})
})

// publishUntilDelayed publishes revisions r2, r3, ... of the ConfigMap of an install, whose
// value is that number, until one is delayed by a dependency: the watch of the dependency may
// lag behind. It returns the revision before, which stays applied.
func publishUntilDelayed(ctx context.Context, in *appsv1.KsctlInstall, message string) (last string) {
	GinkgoHelper()
	last = in.Status.LastAppliedRevision
	delayed := false
	for i := 2; !delayed && i < 50; i++ {
		next := fmt.Sprint("r", i)
		publish(ctx, in.Namespace, in.Name, next, configMap(in.Name, fmt.Sprint(i)))
		Eventually(ctx, func() bool {
			Expect(get(ctx, in)).To(Succeed())
			delayed = strings.Contains(harness.ReadyCondition(in).Message, message)
			return delayed || in.Status.LastAppliedRevision == next
		}, soon, "20ms").Should(BeTrue(), "the revision is delayed, or applied")
		if !delayed {
			last = next
		}
	}
	reports(ctx, in, metav1.ConditionUnknown, "DependencyNotReady", message)
	Expect(in.Status.LastAppliedRevision).To(Equal(last), "the installed revision stays")
	return last
}

// awaitNone waits, for at most long, until sort matches no install of a namespace.
func awaitNone(ctx context.Context, ns string, matches func(*appsv1.KsctlInstall) bool, why string) {
	GinkgoHelper()
	Eventually(ctx, func() (n int, err error) {
		var list appsv1.KsctlInstallList
		err = h.ControlPlane.Client().List(ctx, &list, inNamespace(ns))
		for i := range list.Items {
			if matches(&list.Items[i]) {
				n++
			}
		}
		return n, err
	}, long, "200ms").Should(BeZero(), why)
}

func dryRunInstall(ctx context.Context, d appsv1.Dependency) (*appsv1.KsctlInstall, error) {
	in := &appsv1.KsctlInstall{ObjectMeta: objectMeta("default", "try"), Spec: appsv1.KsctlInstallSpec{Stack: "app",
		SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, DependsOn: []appsv1.Dependency{d}}}
	return in, h.ControlPlane.Client().Create(ctx, in, client.DryRunAll)
}

// expectDeletionOrder checks in the audit log that the ConfigMap of each install was deleted
// before the first request to delete the ConfigMaps of its dependencies.
func expectDeletionOrder(ctx context.Context, ns string, mark cluster.Mark, needs map[string][]string) {
	GinkgoHelper()
	requests, err := h.ControlPlane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	requested, gone, last := map[string]int{}, map[string]int{}, map[string]int{}
	for i, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.InNamespace(ns)) {
		if requested[r.Name] == 0 {
			requested[r.Name] = i + 1
		}
		last[r.Name] = i + 1
		if gone[r.Name] == 0 && !cluster.Failed(r) {
			gone[r.Name] = i + 1
		}
	}
	for name, of := range needs {
		if gone[name] == 0 { // the controller was killed before the response: the request has no success code
			gone[name] = last[name]
		}
		Expect(gone[name]).NotTo(BeZero(), "%s was deleted", name)
		for _, n := range of {
			Expect(requested[n]).To(BeNumerically(">", gone[name]), "%s is deleted after its dependent %s", n, name)
		}
	}
}
