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

var _ = Describe("Installs that depend on others", func() {
	It("begin when those are ready, hold a change while one is not, and keep what they have meanwhile", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		b := one(ctx, ns, "b", after("a"))
		c := one(ctx, ns, "c", after("b"))
		says(ctx, b, metav1.ConditionUnknown, "DependencyNotReady", "KsctlInstall "+ns+"/a does not exist")
		says(ctx, c, metav1.ConditionUnknown, "DependencyNotReady", ns+"/b")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue())
		a := one(ctx, ns, "a")
		becomesReady(ctx, a, b, c)

		By("a dependency that fails holds a change")
		publish(ctx, ns, "a", "r2", "apiVersion: apps/v1\nkind: Nothing\nmetadata: {name: a}\n")
		says(ctx, a, metav1.ConditionFalse, "")
		cm := aConfigMap(ns, "b")
		value := func() string {
			Expect(get(ctx, cm)).To(Succeed())
			return cm.Data["value"]
		}
		change(ctx, aConfigMap(ns, "b"), `{"data":{"value":"drifted"}}`)
		Eventually(ctx, value, soon, "20ms").Should(Equal("1"), "drift is put right all the same")
		last := holds(ctx, b, "KsctlInstall "+ns+"/a is not ready: ")
		Expect("r" + value()).To(Equal(last))

		By("and goes on by itself")
		publish(ctx, ns, "a", "r3", configMap("a", "3"))
		becomesReady(ctx, a, b, c)
		Expect("r" + value()).To(Equal(b.Status.LastAppliedRevision))
		Expect(b.Status.LastAppliedRevision).NotTo(Equal(last))
		remove(ctx, a, b, c)
		gone(ctx, a, b, c)
	})

	It("name a dependency that is suspended, and a circle", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := one(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true })
		b := one(ctx, ns, "b", after("a"))
		says(ctx, b, metav1.ConditionUnknown, "DependencyNotReady", ns+"/a", "suspended")
		change(ctx, a, `{"spec":{"suspend":false,"dependsOn":[{"name":"c"}]}}`)
		c := one(ctx, ns, "c", after("b"))
		for _, in := range []*appsv1.KsctlInstall{a, b, c} {
			says(ctx, in, metav1.ConditionFalse, "DependencyCycle", ns+"/a", ns+"/b", ns+"/c", "→")
		}
		change(ctx, a, `{"spec":{"dependsOn":null}}`)
		becomesReady(ctx, a, b, c)
		By("a circle that came later keeps nobody from going")
		change(ctx, a, `{"spec":{"dependsOn":[{"name":"c"}]}}`)
		says(ctx, a, metav1.ConditionFalse, "DependencyCycle")
		remove(ctx, a, b, c)
		gone(ctx, a, b, c)
	})

	It("may depend on any kind, looked at with the account's rights", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a := one(ctx, ns, "a", func(in *appsv1.KsctlInstall) {
			in.Spec.DependsOn = []appsv1.Dependency{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "switch", ReadyExpr: "self.data.on == 'yes'"},
				{APIVersion: "v1", Kind: "Namespace", Name: "kube-system"},
			}
		})
		says(ctx, a, metav1.ConditionUnknown, "DependencyNotReady", "ConfigMap "+ns+"/switch does not exist")
		cm := aConfigMap(ns, "switch")
		cm.Data = map[string]string{"on": "no"}
		Expect(h.Plane.Client().Create(ctx, cm)).To(Succeed())
		says(ctx, a, metav1.ConditionUnknown, "DependencyNotReady", "ConfigMap "+ns+"/switch is InProgress: readyExpr is false")
		change(ctx, cm, `{"data":{"on":"yes"}}`)
		becomesReady(ctx, a)

		By("one that is deleted is named, and holds a change until it is there again")
		remove(ctx, cm)
		last := holds(ctx, a, "ConfigMap "+ns+"/switch does not exist")
		cm = aConfigMap(ns, "switch")
		cm.Data = map[string]string{"on": "yes"}
		Expect(h.Plane.Client().Create(ctx, cm)).To(Succeed())
		becomesReady(ctx, a)
		Expect(a.Status.LastAppliedRevision).NotTo(Equal(last))

		By("nothing new costs no request")
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		change(ctx, a, `{"metadata":{"annotations":{"`+appsv1.RequestedAtAnnotation+`":"now"}}}`)
		Eventually(ctx, func() string { _ = get(ctx, a); return a.Status.LastHandledReconcileAt }, soon, "20ms").Should(Equal("now"))
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.As(cluster.ServiceAccountUser(ns, "deployer")))).To(BeEmpty())

		By("what can't be is said")
		change(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":"switch","readyExpr":"self.data.on =="}]}}`)
		says(ctx, a, metav1.ConditionFalse, "InvalidDependency", "dependsOn[0]", "readyExpr")
		change(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"Namespace","name":"kube-system","namespace":"x"}]}}`)
		says(ctx, a, metav1.ConditionFalse, "InvalidDependency", "no namespace")
		change(ctx, a, `{"spec":{"dependsOn":[{"apiVersion":"example.com/v1","kind":"Nothing","name":"x"}]}}`)
		says(ctx, a, metav1.ConditionTrue, "") // what is installed is as it should be
		publish(ctx, ns, "a", "another", configMap("a", "another"))
		says(ctx, a, metav1.ConditionUnknown, "DependencyNotReady", "Nothing "+ns+"/x")
		remove(ctx, a)
		gone(ctx, a)
	})

	It("are refused at admission without an apiVersion for another kind, and with an expression over a Secret", func(ctx SpecContext) {
		for says, d := range map[string]appsv1.Dependency{
			"needs its apiVersion": {Kind: "ConfigMap", Name: "a"},
			"its kind":             {APIVersion: "v1", Name: "a"},
			"never sees a Secret":  {APIVersion: "v1", Kind: "Secret", Name: "a", ReadyExpr: "true"},
			"name":                 {APIVersion: "v1", Kind: "ConfigMap"},
		} {
			_, err := tryInstall(ctx, d)
			Expect(err).To(MatchError(ContainSubstring(says)))
		}
		_, err := tryInstall(ctx, appsv1.Dependency{Name: "a"})
		Expect(err).NotTo(HaveOccurred())
		_, err = tryInstall(ctx, appsv1.Dependency{Kind: "KsctlInstall", Name: "a"})
		Expect(err).NotTo(HaveOccurred())
	})

	It("go before it when it is removed, which says what it waits for", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := one(ctx, ns, "a"), one(ctx, ns, "b", after("a"))
		becomesReady(ctx, a, b)
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "DependentsExist", "KsctlInstall "+ns+"/b, which stays", "dependsOn")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, quiet, "200ms").Should(BeFalse())
		By("taking it out of the dependent lets it go")
		change(ctx, b, `{"spec":{"dependsOn":null}}`)
		gone(ctx, a, aConfigMap(ns, "a"))
		becomesReady(ctx, b)
		remove(ctx, b)
		gone(ctx, b)
	})

	It("go in the right order when a whole repository of them is deleted at once", func(ctx SpecContext) {
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
			all[name] = one(ctx, ns, name, after(needs[name]...))
		}
		awaitNone(ctx, ns, func(in *appsv1.KsctlInstall) bool { return harness.Ready(in).Status != metav1.ConditionTrue }, "all are installed")
		for _, in := range all {
			becomesReady(ctx, in)
		}
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		Expect(h.Plane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(ns))).To(Succeed())
		awaitNone(ctx, ns, func(*appsv1.KsctlInstall) bool { return true }, "all are removed")
		for _, in := range all {
			gone(ctx, in, aConfigMap(ns, in.Name))
		}
		AddReportEntry("removal", fmt.Sprintf("%d in %s", n, time.Since(began).Round(time.Millisecond)), ReportEntryVisibilityAlways)
		expectOrder(ctx, ns, mark, needs)
	})
})

// holds offers revisions r2, r3, ... of an install's ConfigMap, whose value is that number,
// until one is held for a dependency: who watches that may be behind. It returns the one
// before, which stays.
func holds(ctx context.Context, in *appsv1.KsctlInstall, why string) (last string) {
	GinkgoHelper()
	last = in.Status.LastAppliedRevision
	held := false
	for i := 2; !held && i < 50; i++ {
		next := fmt.Sprint("r", i)
		publish(ctx, in.Namespace, in.Name, next, configMap(in.Name, fmt.Sprint(i)))
		Eventually(ctx, func() bool {
			Expect(get(ctx, in)).To(Succeed())
			held = strings.Contains(harness.Ready(in).Message, why)
			return held || in.Status.LastAppliedRevision == next
		}, soon, "20ms").Should(BeTrue(), "it is held, or applied")
		if !held {
			last = next
		}
	}
	says(ctx, in, metav1.ConditionUnknown, "DependencyNotReady", why)
	Expect(in.Status.LastAppliedRevision).To(Equal(last), "what is installed stays")
	return last
}

// awaitNone waits for long until no install of a namespace is of a sort.
func awaitNone(ctx context.Context, ns string, sort func(*appsv1.KsctlInstall) bool, why string) {
	GinkgoHelper()
	Eventually(ctx, func() (n int, err error) {
		var list appsv1.KsctlInstallList
		err = h.Plane.Client().List(ctx, &list, inNamespace(ns))
		for i := range list.Items {
			if sort(&list.Items[i]) {
				n++
			}
		}
		return n, err
	}, long, "200ms").Should(BeZero(), why)
}

func tryInstall(ctx context.Context, d appsv1.Dependency) (*appsv1.KsctlInstall, error) {
	in := &appsv1.KsctlInstall{ObjectMeta: named("default", "try"), Spec: appsv1.KsctlInstallSpec{Stack: "app",
		SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, DependsOn: []appsv1.Dependency{d}}}
	return in, h.Plane.Client().Create(ctx, in, client.DryRunAll)
}

// expectOrder reads from the audit log that the ConfigMap of each install went
// before anybody asked for the deletion of those of the installs that it needs.
func expectOrder(ctx context.Context, ns string, mark cluster.Mark, needs map[string][]string) {
	GinkgoHelper()
	requests, err := h.Plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	asked, gone, last := map[string]int{}, map[string]int{}, map[string]int{}
	for i, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.In(ns)) {
		if asked[r.Name] == 0 {
			asked[r.Name] = i + 1
		}
		last[r.Name] = i + 1
		if gone[r.Name] == 0 && !cluster.Failed(r) {
			gone[r.Name] = i + 1
		}
	}
	for name, of := range needs {
		if gone[name] == 0 { // who asked was killed before the answer: what was done has no good code
			gone[name] = last[name]
		}
		Expect(gone[name]).NotTo(BeZero(), "%s was deleted", name)
		for _, n := range of {
			Expect(asked[n]).To(BeNumerically(">", gone[name]), "%s goes after %s, which needs it", n, name)
		}
	}
}
