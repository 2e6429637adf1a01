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

// publishThree publishes a stack of three components that depend on each other. Each has a
// ConfigMap, and the last a PersistentVolumeClaim.
func publishThree(ctx context.Context, ns, source, revision, value string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, source, revision, harness.SourceTree(threeStack, map[string]string{
		"base/base.yaml": configMap("base", value), "app/app.yaml": configMap("app", value),
		"dash/dash.yaml": configMap("dash", value), "dash/claim.yaml": claim,
	}))).To(Succeed())
}

func retryQuickly(in *appsv1.KsctlInstall) {
	in.Spec.RetryInterval = &metav1.Duration{Duration: 3 * time.Second}
}

// newRemove creates a KsctlRemove of an install.
func newRemove(ctx context.Context, ns, name, install string, change ...func(*appsv1.KsctlRemove)) *appsv1.KsctlRemove {
	GinkgoHelper()
	rm := &appsv1.KsctlRemove{ObjectMeta: objectMeta(ns, name),
		Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: install}}}
	for _, f := range change {
		f(rm)
	}
	Expect(h.ControlPlane.Client().Create(ctx, rm)).To(Succeed())
	return rm
}

func forComponents(components ...string) func(*appsv1.KsctlRemove) {
	return func(rm *appsv1.KsctlRemove) { rm.Spec.Components = components }
}

// removeReports waits until the Ready condition of a KsctlRemove has a status and a reason, and
// its message contains all texts. An empty reason matches any.
func removeReports(ctx context.Context, rm *appsv1.KsctlRemove, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, rm); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(rm.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.Status != status || (reason != "" && c.Reason != reason) ||
			rm.Status.ObservedGeneration != rm.Generation {
			return fmt.Sprintf("Ready is %+v", c)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("%q is not in the message: %s", t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s reports %s/%s", rm.Name, status, reason)
}

// printedColumns returns what kubectl get prints for a KsctlRemove, by column.
func printedColumns(ctx context.Context, rm *appsv1.KsctlRemove) map[string]string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, h.ControlPlane.Kubectl(), "--kubeconfig", h.ControlPlane.Kubeconfig(),
		"--cache-dir", GinkgoT().TempDir(),
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

// expectPreviewFirst starts watches. The returned function checks that the preview was written
// before the first ConfigMap was deleted.
func expectPreviewFirst(ctx context.Context, ns string) (check func()) {
	GinkgoHelper()
	dyn, err := dynamic.NewForConfig(h.ControlPlane.Config())
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
				Expect(open).To(BeTrue(), "the watch stays open")
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
		previewed := first(removes, func(e watch.Event) bool {
			u, ok := e.Object.(interface{ UnstructuredContent() map[string]any })
			if !ok {
				return false
			}
			st, _ := u.UnstructuredContent()["status"].(map[string]any)
			r, _ := st["removal"].(map[string]any)
			return r["order"] != nil
		})
		deleted := first(maps, func(e watch.Event) bool { return e.Type == watch.Deleted })
		Expect(previewed).To(BeNumerically("<", deleted), "the preview is written before the first delete")
	}
}

// deletedConfigMaps returns the ConfigMaps that were deleted since a mark, in order.
func deletedConfigMaps(ctx context.Context, ns string, mark cluster.Mark) (names []string) {
	GinkgoHelper()
	requests, err := h.ControlPlane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	for _, r := range requests.Where(cluster.Verb("delete"), cluster.Resource("configmaps"), cluster.InNamespace(ns)).
		Without(cluster.Failed) {
		names = append(names, r.Name)
	}
	return names
}

// awaitIdle waits until there are no writes in a namespace for a while. The watches of the
// controller may lag behind what the test has read.
func awaitIdle(ctx context.Context, ns string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		mark, err := h.ControlPlane.AuditMark(ctx)
		if err != nil {
			return "", err
		}
		time.Sleep(quiet) // an absence has no event
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		return requests.Where(cluster.Write, cluster.InNamespace(ns)).Without(cluster.Resource("events")).String(), err
	}, soon).Should(HavePrefix("0 requests"), "an idle controller writes nothing")
}

var _ = Describe("A KsctlRemove of an install", func() {
	It("previews and removes the objects in order, keeps claims, prevents a new installation, and permits it when "+
		"deleted", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publishThree(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", retryQuickly)
		becomesReady(ctx, a)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		check := expectPreviewFirst(ctx, ns)
		rm := newRemove(ctx, ns, "away", "a")
		removeReports(ctx, rm, metav1.ConditionTrue, "", "3 objects removed, 1 kept: PersistentVolumeClaim "+ns+
			"/data (spec.keep", "has PersistentVolumeClaim)")
		check()
		Expect(deletedConfigMaps(ctx, ns, mark)).To(Equal([]string{"dash", "app", "base"}))
		Expect(removalIDs(rm)).To(Equal([][]string{{id(ns, "dash")}, {id(ns, "app")}, {id(ns, "base")}}))
		Expect(rm.Status.Removal.Count).To(BeEquivalentTo(4))
		Expect(rm.Status.Removal.Kept).To(ConsistOf(HaveField("ID", ns+"_data__PersistentVolumeClaim")))
		Expect(rm.Status.Remaining).To(ConsistOf(HaveField("Reason", "Kept")))
		Expect(printedColumns(ctx, rm)).To(And(HaveKeyWithValue("READY", "True"), HaveKeyWithValue("REMOVED", "3"),
			HaveKeyWithValue("LEFT", "1"),
			HaveKeyWithValue("STATUS", ContainSubstring("3 objects removed, 1 kept"))))
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ns, "data")}
		Expect(get(ctx, pvc)).To(Succeed())
		Expect(pvc.DeletionTimestamp).To(BeNil())
		Expect(pvc.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "nothing is installed: removed by KsctlRemove away")
		Expect(a.Status.Inventory).To(BeNil())
		awaitIdle(ctx, ns)

		By("a change of the source does not install anything")
		publishThree(ctx, ns, "a", "r2", "2")
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "base")) }, quiet, "200ms").Should(BeTrue())
		By("deleting the KsctlRemove does, after a retryInterval")
		began := time.Now()
		remove(ctx, rm)
		awaitGone(ctx, rm)
		reports(ctx, a, metav1.ConditionTrue, "ReconciliationSucceeded", "r2")
		Expect(time.Since(began)).To(BeNumerically(">=", 3*time.Second))
		cm := aConfigMap(ns, "dash")
		Expect(get(ctx, cm)).To(Succeed())
		Expect(cm.Data).To(HaveKeyWithValue("value", "2"))
		Expect(a.Status.Removals).To(BeEmpty())
		remove(ctx, a)
		awaitGone(ctx, a)
	})

	It("removes single components, reports their dependents, and leaves the others unchanged", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publishThree(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", retryQuickly)
		b := installConfigMap(ctx, ns, "b", dependingOn("a"))
		becomesReady(ctx, a, b)
		app := aConfigMap(ns, "app")
		Expect(get(ctx, app)).To(Succeed())
		rm := newRemove(ctx, ns, "parts", "a", forComponents("base", "dash"), func(rm *appsv1.KsctlRemove) {
			rm.Spec.Suspend = true
		})
		mergePatch(ctx, rm, `{"spec":{"keep":[],"suspend":false}}`)
		removeReports(ctx, rm, metav1.ConditionTrue, "", "objects removed, nothing is left")
		Expect(rm.Status.Removal.Dependents).
			To(ConsistOf(ContainSubstring("component app stays and depends on base"),
				ContainSubstring(ns+"/b depends on the install and is not waited for")))
		awaitGone(ctx, aConfigMap(ns, "base"), aConfigMap(ns, "dash"),
			&corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ns, "data")})
		uid := app.UID
		Expect(get(ctx, app)).To(Succeed())
		Expect(app.UID).To(Equal(uid))
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r1", "removed by KsctlRemove parts: base, dash")
		Expect(a.Status.Components).To(HaveExactElements(And(HaveField("Name", "base"),
			HaveField("Message", ContainSubstring("removed by KsctlRemove parts"))),
			And(HaveField("Name", "app"), HaveField("Ready", true)), HaveField("Name", "dash")))

		By("dependents of removed components are not changed")
		publishThree(ctx, ns, "a", "r2", "2")
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "r2", "blocked by the removal: app")
		Expect(get(ctx, app)).To(Succeed())
		Expect(app.Data).To(HaveKeyWithValue("value", "1"))
		awaitIdle(ctx, ns)
		By("dependents are changed when the components are back")
		mergePatch(ctx, rm, `{"spec":{"components":["dash"]}}`)
		Eventually(ctx, func() string { _ = get(ctx, app); return app.Data["value"] }, soon, "20ms").Should(Equal("2"))
		removeReports(ctx, rm, metav1.ConditionTrue, "", "nothing to remove")
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "removed by KsctlRemove parts: dash")
		remove(ctx, a, b, rm)
		awaitGone(ctx, a, b, rm)
	})

	It("that exists together with its install becomes idle, without "+
		"further writes", suite.Safety, func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publishThree(ctx, ns, "a", "r1", "1")
		rm := newRemove(ctx, ns, "away", "a", forComponents("dash"))
		removeReports(ctx, rm, metav1.ConditionTrue, "", "does not exist: there is nothing to remove")
		a := install(ctx, ns, "a")
		whole := newRemove(ctx, ns, "whole", "b")
		b := installConfigMap(ctx, ns, "b")
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest", "removed by KsctlRemove away: dash")
		reports(ctx, b, metav1.ConditionTrue, "RemovedByRequest", "nothing is installed")
		removeReports(ctx, rm, metav1.ConditionTrue, "")
		removeReports(ctx, whole, metav1.ConditionTrue, "")
		Expect(absent(ctx, aConfigMap(ns, "dash"))).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue())
		Expect(get(ctx, aConfigMap(ns, "app"))).To(Succeed())
		awaitIdle(ctx, ns)
		remove(ctx, a, b, rm, whole)
		awaitGone(ctx, a, b, rm, whole)
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue(), "an install that is deleted as well installs nothing")
	})

	It("keeps or deletes a CRD with objects of other owners, according to spec.customResources", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}}
		publish(ctx, ns, "a", "r1", definition(group), configMap("a", "1"))
		a := install(ctx, ns, "a")
		becomesReady(ctx, a)
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Create(ctx, theirs)
		}, soon).Should(Succeed(), "the kind is served")
		rm := newRemove(ctx, ns, "away", "a")
		removeReports(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 2 objects removed", crd.Name,
			"that others created ("+ns+"/theirs)")
		Expect(rm.Status.Removal.Blockers).To(ConsistOf(HaveField("Message", ContainSubstring(ns+"/theirs"))))
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())
		mergePatch(ctx, rm, `{"spec":{"customResources":"Delete"}}`)
		removeReports(ctx, rm, metav1.ConditionTrue, "", "nothing is left")
		awaitGone(ctx, crd)
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest")
		remove(ctx, a, rm)
		awaitGone(ctx, a, rm)
	})

	It("reports what blocks it, reports a timeout, and continues", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "a", "r1", configMap("a", "1"), configMap("b", "1"))
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Spec.Suspend = false })
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "b")
		Expect(get(ctx, stuck)).To(Succeed())
		stuck.Finalizers = []string{"example.com/operator"}
		Expect(h.ControlPlane.Client().Update(ctx, stuck, fieldOwner("some-operator"))).To(Succeed())
		suspend(ctx, a)
		rm := newRemove(ctx, ns, "away", "a", func(rm *appsv1.KsctlRemove) {
			rm.Spec.Timeout = &metav1.Duration{Duration: 30 * time.Second}
		})
		removeReports(ctx, rm, metav1.ConditionUnknown, "Removing", "is suspended", "2 objects to be removed in 1 step",
			"finalizers example.com/operator")
		Expect(printedColumns(ctx, rm)).To(And(HaveKeyWithValue("READY", "Unknown"), HaveKeyWithValue("REMOVED", "0"),
			HaveKeyWithValue("LEFT", "2"), HaveKeyWithValue("STATUS", ContainSubstring("suspended"))))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		mergePatch(ctx, a, `{"spec":{"suspend":false}}`)
		removeReports(ctx, rm, metav1.ConditionFalse, "Timeout", "not removed within 30s, still in progress",
			"1 of 2 objects removed", "ConfigMap "+ns+"/b is being deleted since 20",
			"finalizers [example.com/operator]", "set by some-operator")
		Expect(rm.Status.Remaining).
			To(ConsistOf(And(HaveField("ID", id(ns, "b")),
				HaveField("Message", ContainSubstring("example.com/operator")))))
		Expect(printedColumns(ctx, rm)).
			To(And(HaveKeyWithValue("READY", "False"), HaveKeyWithValue("REMOVED", "1"), HaveKeyWithValue("LEFT", "1")))
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		removeReports(ctx, rm, metav1.ConditionTrue, "", "2 objects removed, nothing is left")
		remove(ctx, a, rm)
		awaitGone(ctx, a, rm)
	})

	It("waits for dependents of the install, which are removed first by their own KsctlRemove", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		a, b := installConfigMap(ctx, ns, "a"), installConfigMap(ctx, ns, "b", dependingOn("a"))
		becomesReady(ctx, a, b)
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		ra := newRemove(ctx, ns, "away-a", "a")
		removeReports(ctx, ra, metav1.ConditionUnknown, "Removing",
			"KsctlInstall a reports: dependents must be removed first", ns+"/b, which is not being removed")
		Expect(ra.Status.Removal.Dependents).
			To(ConsistOf(ContainSubstring(ns + "/b depends on the install and must be removed first")))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		rb := newRemove(ctx, ns, "away-b", "b")
		removeReports(ctx, rb, metav1.ConditionTrue, "", "nothing is left")
		removeReports(ctx, ra, metav1.ConditionTrue, "", "nothing is left")
		Expect(deletedConfigMaps(ctx, ns, mark)).To(Equal([]string{"b", "a"}))
		By("a new install that depends on the removed install does not start")
		c := installConfigMap(ctx, ns, "c", dependingOn("a"))
		reports(ctx, c, metav1.ConditionUnknown, "DependencyNotReady", ns+"/a is not installed: ", "KsctlRemove away-a")
		remove(ctx, a, b, c, ra, rb)
		awaitGone(ctx, a, b, c, ra, rb)
	})

	It("continues when the install is deleted, and without source and stack", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publishThree(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", retryQuickly)
		becomesReady(ctx, a)
		remove(ctx, &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "a")})
		rm := newRemove(ctx, ns, "dash", "a", forComponents("dash"))
		removeReports(ctx, rm, metav1.ConditionTrue, "", "1 object removed, 1 kept")
		reports(ctx, a, metav1.ConditionFalse, "SourceNotFound")
		stuck := aConfigMap(ns, "app")
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":["example.com/x"]}}`)
		whole := newRemove(ctx, ns, "whole", "a")
		removeReports(ctx, whole, metav1.ConditionUnknown, "Removing", "example.com/x")
		remove(ctx, a)
		reports(ctx, a, metav1.ConditionUnknown, "Removing", "example.com/x")
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		awaitGone(ctx, a, stuck, aConfigMap(ns, "base"))
		removeReports(ctx, whole, metav1.ConditionTrue, "", "2 objects removed")
		awaitIdle(ctx, ns)
		remove(ctx, rm, whole)
		awaitGone(ctx, rm, whole)
	})

	It("is continued after a restart of the controller", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		c := startController(ns)
		publishThree(ctx, ns, "a", "r1", "1")
		a := install(ctx, ns, "a", func(in *appsv1.KsctlInstall) { in.Labels = map[string]string{controllerLabel: ns} })
		becomesReady(ctx, a)
		stuck := aConfigMap(ns, "app")
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":["example.com/x"]}}`)
		rm := newRemove(ctx, ns, "away", "a", func(rm *appsv1.KsctlRemove) {
			rm.Labels = map[string]string{controllerLabel: ns}
		})
		removeReports(ctx, rm, metav1.ConditionUnknown, "Removing", "1 of 4 objects removed")
		digest := rm.Status.Removal.Digest
		Expect(c.Stop()).To(Succeed())
		mergePatch(ctx, stuck, `{"metadata":{"finalizers":null}}`)
		c.Start()
		removeReports(ctx, rm, metav1.ConditionTrue, "", "3 objects removed, 1 kept: PersistentVolumeClaim")
		Expect(rm.Status.Removal.Digest).To(Equal(digest), "the preview is unchanged")
		reports(ctx, a, metav1.ConditionTrue, "RemovedByRequest")
		remove(ctx, a, rm)
		awaitGone(ctx, a, rm)
	})
})
