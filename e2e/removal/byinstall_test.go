package removal_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

const threeStack = `spec:
  version: 1.0.0
  components:
  - {name: base, manifests: [base/]}
  - {name: app, manifests: [app/], dependsOn: [base]}
  - {name: dash, manifests: [dash/], dependsOn: [app]}
`

// three components that need each other: a ConfigMap each, and a claim in the last.
func three(ctx context.Context, ns, source, revision, value string) {
	GinkgoHelper()
	Expect(h.Publish(ctx, ns, source, revision, harness.Tree(threeStack, map[string]string{
		"base/base.yaml": configMap("base", value), "app/app.yaml": configMap("app", value),
		"dash/dash.yaml": configMap("dash", value), "dash/claim.yaml": claim,
	}))).To(Succeed())
}

func briefly(in *appsv1.KsctlInstall) {
	in.Spec.RetryInterval = &metav1.Duration{Duration: 3 * time.Second}
}

// ask makes a KsctlRemove for an install.
func ask(ctx context.Context, ns, name, install string, change ...func(*appsv1.KsctlRemove)) *appsv1.KsctlRemove {
	GinkgoHelper()
	rm := &appsv1.KsctlRemove{ObjectMeta: named(ns, name), Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: install}}}
	for _, f := range change {
		f(rm)
	}
	Expect(h.Plane.Client().Create(ctx, rm)).To(Succeed())
	return rm
}

func only(components ...string) func(*appsv1.KsctlRemove) {
	return func(rm *appsv1.KsctlRemove) { rm.Spec.Components = components }
}

// answers waits until a KsctlRemove's Ready condition is as wanted and its message has
// all of the texts.
func answers(ctx context.Context, rm *appsv1.KsctlRemove, status metav1.ConditionStatus, reason string, texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, rm); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(rm.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.Status != status || (reason != "" && c.Reason != reason) || rm.Status.ObservedGeneration != rm.Generation {
			return fmt.Sprintf("Ready is %+v", c)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("%q is not in its message: %s", t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s says %s/%s", rm.Name, status, reason)
}

// row is what kubectl shows of a KsctlRemove, by column.
func row(ctx context.Context, rm *appsv1.KsctlRemove) map[string]string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, h.Plane.Kubectl(), "--kubeconfig", h.Plane.Kubeconfig(), "--cache-dir", GinkgoT().TempDir(),
		"get", "krm", rm.Name, "-n", rm.Namespace).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	head, line, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	cells := map[string]string{}
	var names []string
	for rest := head; rest != ""; {
		name, _, _ := strings.Cut(rest, " ")
		names = append(names, name)
		rest = strings.TrimLeft(strings.TrimPrefix(rest, name), " ")
	}
	for i, name := range names {
		from := strings.Index(head, name)
		to := len(line)
		if i+1 < len(names) {
			to = min(to, strings.Index(head, names[i+1]))
		}
		cells[name] = strings.TrimSpace(line[min(from, len(line)):to])
	}
	AddReportEntry("kubectl get krm", string(out))
	return cells
}

func removalIDs(rm *appsv1.KsctlRemove) (out [][]string) {
	for _, s := range rm.Status.Removal.Order {
		out = append(out, s.Objects)
	}
	return out
}

func id(ns, name string) string { return ns + "_" + name + "__ConfigMap" }

// rehearsedFirst watches, and tells in the end whether the rehearsal was written before
// the first ConfigMap went.
func rehearsedFirst(ctx context.Context, ns string) (check func()) {
	GinkgoHelper()
	dyn, err := dynamic.NewForConfig(h.Plane.Config())
	Expect(err).NotTo(HaveOccurred())
	start := func(gvr schema.GroupVersionResource) watch.Interface {
		w, err := dyn.Resource(gvr).Namespace(ns).Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		return w
	}
	removes := start(appsv1.GroupVersion.WithResource("ksctlremoves"))
	maps := start(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	first := func(w watch.Interface, is func(watch.Event) bool) uint64 {
		for {
			select {
			case e, open := <-w.ResultChan():
				Expect(open).To(BeTrue(), "the watch goes on")
				if is(e) {
					o, err := apimeta.Accessor(e.Object)
					Expect(err).NotTo(HaveOccurred())
					v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
					Expect(err).NotTo(HaveOccurred())
					return v
				}
			case <-time.After(soon):
				Fail("no such event")
			}
		}
	}
	return func() {
		GinkgoHelper()
		defer removes.Stop()
		defer maps.Stop()
		said := first(removes, func(e watch.Event) bool {
			u, ok := e.Object.(interface{ UnstructuredContent() map[string]any })
			if !ok {
				return false
			}
			st, _ := u.UnstructuredContent()["status"].(map[string]any)
			r, _ := st["removal"].(map[string]any)
			return r["order"] != nil
		})
		deleted := first(maps, func(e watch.Event) bool { return e.Type == watch.Deleted })
		Expect(said).To(BeNumerically("<", deleted), "the rehearsal stands there before the first delete")
	}
}

// deletesOf are the ConfigMaps that were deleted since a mark, in order.
func deletesOf(ctx context.Context, ns string, mark cluster.Mark) (names []string) {
	GinkgoHelper()
	requests, err := h.Plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	for _, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.In(ns)).Without(cluster.Failed) {
		names = append(names, r.Name)
	}
	return names
}

// idle waits until nobody writes anything in a namespace for a while. Of what is
// seen in one object another one may not have heard yet.
func idle(ctx context.Context, ns string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		mark, err := h.Plane.AuditMark(ctx)
		if err != nil {
			return "", err
		}
		time.Sleep(quiet) // what must not happen can't be waited for
		requests, err := h.Plane.AuditSince(ctx, mark)
		return requests.Where(cluster.Write, cluster.In(ns)).Without(cluster.Resource("events")).String(), err
	}, soon).Should(HavePrefix("0 requests"), "nothing is written when nothing is to do")
}

var _ = Describe("A removal that is asked for", func() {
	It("takes an install away in order after it was rehearsed, keeps claims and what it removed away, and lets it come back when it is deleted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		three(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", briefly)
		becomesReady(ctx, a)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		check := rehearsedFirst(ctx, ns)
		rm := ask(ctx, ns, "away", "a")
		answers(ctx, rm, metav1.ConditionTrue, "", "3 objects removed, 1 kept: PersistentVolumeClaim "+ns+"/data (spec.keep", "has PersistentVolumeClaim)")
		check()
		Expect(deletesOf(ctx, ns, mark)).To(Equal([]string{"dash", "app", "base"}))
		Expect(removalIDs(rm)).To(Equal([][]string{{id(ns, "dash")}, {id(ns, "app")}, {id(ns, "base")}}))
		Expect(rm.Status.Removal.Count).To(BeEquivalentTo(4))
		Expect(rm.Status.Removal.Kept).To(ConsistOf(HaveField("ID", ns+"_data__PersistentVolumeClaim")))
		Expect(rm.Status.Remaining).To(ConsistOf(HaveField("Reason", "Kept")))
		Expect(row(ctx, rm)).To(And(HaveKeyWithValue("READY", "True"), HaveKeyWithValue("REMOVED", "3"), HaveKeyWithValue("LEFT", "1"),
			HaveKeyWithValue("STATUS", ContainSubstring("3 objects removed, 1 kept"))))
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: named(ns, "data")}
		Expect(get(ctx, pvc)).To(Succeed())
		Expect(pvc.DeletionTimestamp).To(BeNil())
		Expect(pvc.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "nothing is installed: removed by KsctlRemove away")
		Expect(a.Status.Inventory).To(BeNil())
		idle(ctx, ns)

		By("a change of the source brings nothing back")
		three(ctx, ns, "a", "r2", "2")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "base")) }, quiet, "200ms").Should(BeTrue())
		By("the end of the removal does, when a retryInterval has passed")
		began := time.Now()
		remove(ctx, rm)
		gone(ctx, rm)
		says(ctx, a, metav1.ConditionTrue, "ReconciliationSucceeded", "r2")
		Expect(time.Since(began)).To(BeNumerically(">=", 3*time.Second))
		cm := aConfigMap(ns, "dash")
		Expect(get(ctx, cm)).To(Succeed())
		Expect(cm.Data).To(HaveKeyWithValue("value", "2"))
		Expect(a.Status.Removals).To(BeEmpty())
		remove(ctx, a)
		gone(ctx, a)
	})

	It("takes named components, names those that need them, and leaves the others as they are", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		three(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", briefly)
		b := one(ctx, ns, "b", after("a"))
		becomesReady(ctx, a, b)
		app := aConfigMap(ns, "app")
		Expect(get(ctx, app)).To(Succeed())
		rm := ask(ctx, ns, "parts", "a", only("base", "dash"), func(rm *appsv1.KsctlRemove) { rm.Spec.Suspend = true })
		change(ctx, rm, `{"spec":{"keep":[],"suspend":false}}`)
		answers(ctx, rm, metav1.ConditionTrue, "", "objects removed, nothing is left")
		Expect(rm.Status.Removal.Dependents).To(ConsistOf(ContainSubstring("component app, which stays, depends on base"), ContainSubstring(ns+"/b, which is not waited for")))
		gone(ctx, aConfigMap(ns, "base"), aConfigMap(ns, "dash"), &corev1.PersistentVolumeClaim{ObjectMeta: named(ns, "data")})
		uid := app.UID
		Expect(get(ctx, app)).To(Succeed())
		Expect(app.UID).To(Equal(uid))
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r1", "removed by KsctlRemove parts: base, dash")
		Expect(a.Status.Components).To(HaveExactElements(And(HaveField("Name", "base"), HaveField("Message", ContainSubstring("removed by KsctlRemove parts"))),
			And(HaveField("Name", "app"), HaveField("Ready", true)), HaveField("Name", "dash")))

		By("what needs them takes in no change")
		three(ctx, ns, "a", "r2", "2")
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r2", "these wait for what was removed: app")
		Expect(get(ctx, app)).To(Succeed())
		Expect(app.Data).To(HaveKeyWithValue("value", "1"))
		idle(ctx, ns)
		By("and does when they come back")
		change(ctx, rm, `{"spec":{"components":["dash"]}}`)
		Eventually(ctx, func() string { _ = get(ctx, app); return app.Data["value"] }, soon, "20ms").Should(Equal("2"))
		answers(ctx, rm, metav1.ConditionTrue, "", "nothing to remove")
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "removed by KsctlRemove parts: dash")
		remove(ctx, a, b, rm)
		gone(ctx, a, b, rm)
	})

	It("together with the install that it names settles, and nothing is written any more", suite.Safety, func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		three(ctx, ns, "a", "r1", "1")
		rm := ask(ctx, ns, "away", "a", only("dash"))
		answers(ctx, rm, metav1.ConditionTrue, "", "does not exist: there is nothing to remove")
		a := install(ctx, ns, "a")
		whole := ask(ctx, ns, "whole", "b")
		b := one(ctx, ns, "b")
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "removed by KsctlRemove away: dash")
		says(ctx, b, metav1.ConditionTrue, "RemovedByRequest", "nothing is installed")
		answers(ctx, rm, metav1.ConditionTrue, "")
		answers(ctx, whole, metav1.ConditionTrue, "")
		Expect(absent(ctx, aConfigMap(ns, "dash"))).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue())
		Expect(get(ctx, aConfigMap(ns, "app"))).To(Succeed())
		idle(ctx, ns)
		remove(ctx, a, b, rm, whole)
		gone(ctx, a, b, rm, whole)
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue(), "an install that goes, too, brings nothing back")
	})

	It("leaves a definition that others have objects of, or takes it with all of them, as it is told", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		publish(ctx, ns, "a", "r1", definition(group), configMap("a", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error { return h.Plane.Client().Create(ctx, theirs) }, soon).Should(Succeed(), "the kind is served")
		rm := ask(ctx, ns, "away", "a")
		answers(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 2 objects removed", crd.Name, "that others made ("+ns+"/theirs)")
		Expect(rm.Status.Removal.Blockers).To(ConsistOf(HaveField("Message", ContainSubstring(ns+"/theirs"))))
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())
		change(ctx, rm, `{"spec":{"customResources":"Delete"}}`)
		answers(ctx, rm, metav1.ConditionTrue, "", "nothing is left")
		gone(ctx, crd)
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest")
		remove(ctx, a, rm)
		gone(ctx, a, rm)
	})

	It("names what holds it, says so when it is late, and goes on", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.Suspend = false })
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "b")
		Expect(get(ctx, stuck)).To(Succeed())
		stuck.Finalizers = []string{"example.com/operator"}
		Expect(h.Plane.Client().Update(ctx, stuck, fieldOwner("some-operator"))).To(Succeed())
		suspend(ctx, a)
		rm := ask(ctx, ns, "away", "a", func(rm *appsv1.KsctlRemove) { rm.Spec.Timeout = &metav1.Duration{Duration: 30 * time.Second} })
		answers(ctx, rm, metav1.ConditionUnknown, "Removing", "is suspended", "2 objects to be removed in 1 step", "finalizers example.com/operator")
		Expect(row(ctx, rm)).To(And(HaveKeyWithValue("READY", "Unknown"), HaveKeyWithValue("REMOVED", "0"), HaveKeyWithValue("LEFT", "2"), HaveKeyWithValue("STATUS", ContainSubstring("suspended"))))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		change(ctx, a, `{"spec":{"suspend":false}}`)
		answers(ctx, rm, metav1.ConditionFalse, "Timeout", "not removed within 30s, and going on", "1 of 2 objects removed", "ConfigMap "+ns+"/b is being deleted since 20", "finalizers [example.com/operator]", "which some-operator set")
		Expect(rm.Status.Remaining).To(ConsistOf(And(HaveField("ID", id(ns, "b")), HaveField("Message", ContainSubstring("example.com/operator")))))
		Expect(row(ctx, rm)).To(And(HaveKeyWithValue("READY", "False"), HaveKeyWithValue("REMOVED", "1"), HaveKeyWithValue("LEFT", "1")))
		change(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		answers(ctx, rm, metav1.ConditionTrue, "", "2 objects removed, nothing is left")
		remove(ctx, a, rm)
		gone(ctx, a, rm)
	})

	It("waits for those that depend on the install, which go first when that is asked for, too", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := one(ctx, ns, "a"), one(ctx, ns, "b", after("a"))
		becomesReady(ctx, a, b)
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		ra := ask(ctx, ns, "away-a", "a")
		answers(ctx, ra, metav1.ConditionUnknown, "Removing", "KsctlInstall a says: these depend on it and go first", ns+"/b, which stays")
		Expect(ra.Status.Removal.Dependents).To(ConsistOf(ContainSubstring(ns + "/b, which has to go first")))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		rb := ask(ctx, ns, "away-b", "b")
		answers(ctx, rb, metav1.ConditionTrue, "", "nothing is left")
		answers(ctx, ra, metav1.ConditionTrue, "", "nothing is left")
		Expect(deletesOf(ctx, ns, mark)).To(Equal([]string{"b", "a"}))
		By("an install that needs what was removed does not begin")
		c := one(ctx, ns, "c", after("a"))
		says(ctx, c, metav1.ConditionUnknown, "DependencyNotReady", ns+"/a is not installed: ", "KsctlRemove away-a")
		remove(ctx, a, b, c, ra, rb)
		gone(ctx, a, b, c, ra, rb)
	})

	It("goes on when the install is deleted meanwhile, and when source and stack are gone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		three(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", briefly)
		becomesReady(ctx, a)
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: named(ns, "a")})
		rm := ask(ctx, ns, "dash", "a", only("dash"))
		answers(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")
		says(ctx, a, metav1.ConditionFalse, "SourceNotFound")
		stuck := aConfigMap(ns, "app")
		change(ctx, stuck, `{"metadata":{"finalizers":["example.com/x"]}}`)
		whole := ask(ctx, ns, "whole", "a")
		answers(ctx, whole, metav1.ConditionUnknown, "Removing", "example.com/x")
		remove(ctx, a)
		says(ctx, a, metav1.ConditionUnknown, "Removing", "example.com/x")
		change(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		gone(ctx, a, stuck, aConfigMap(ns, "base"))
		answers(ctx, whole, metav1.ConditionTrue, "", "2 objects removed")
		idle(ctx, ns)
		remove(ctx, rm, whole)
		gone(ctx, rm, whole)
	})

	It("of an install is carried on by the next life of the controller", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		flags := []string{"--owner-id=" + ns, "--watch-label-selector=" + own + "=" + ns}
		c, err := h.StartController(flags...)
		Expect(err).NotTo(HaveOccurred())
		three(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{own: ns} })
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "app")
		change(ctx, stuck, `{"metadata":{"finalizers":["example.com/x"]}}`)
		rm := ask(ctx, ns, "away", "a", func(rm *appsv1.KsctlRemove) { rm.Labels = map[string]string{own: ns} })
		answers(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 4 objects removed")
		digest := rm.Status.Removal.Digest
		Expect(c.Stop()).To(Succeed())
		change(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		c, err = h.StartController(flags...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return c.Stop() })
		answers(ctx, rm, metav1.ConditionTrue, "", "3 objects removed, 1 kept: PersistentVolumeClaim")
		Expect(rm.Status.Removal.Digest).To(Equal(digest), "the rehearsal is that of the beginning")
		says(ctx, a, metav1.ConditionTrue, "RemovedByRequest")
		remove(ctx, a, rm)
		gone(ctx, a, rm)
	})
})
