package removal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/bysource"
	"github.com/ksctl/gitops/e2e/harness"
)

// removal of what stack "app" of source "src" put somewhere.
func removal(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlRemove)) *appsv1.KsctlRemove {
	GinkgoHelper()
	hour := &metav1.Duration{Duration: time.Hour}
	rm := &appsv1.KsctlRemove{ObjectMeta: named(ns, name), Spec: appsv1.KsctlRemoveSpec{
		Schedule:  appsv1.Schedule{Interval: hour, RetryInterval: &metav1.Duration{Duration: time.Second}},
		SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app", ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(rm)
	}
	Expect(h.Plane.Client().Create(ctx, rm)).To(Succeed())
	return rm
}

// tells waits until a KsctlRemove's Ready condition is as wanted and its message
// has all of the texts.
func tells(ctx context.Context, rm *appsv1.KsctlRemove, status metav1.ConditionStatus, reason string, texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, rm); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(rm.Status.Conditions, appsv1.ReadyCondition)
		if c == nil {
			return "no Ready"
		}
		if c.Status != status || c.Reason != reason || rm.Status.ObservedGeneration != rm.Generation {
			return fmt.Sprintf("Ready is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("Ready is %s/%s, and %q is not in its message: %s", c.Status, c.Reason, t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s tells %s/%s", rm.Name, status, reason)
}

// found waits until a KsctlRemove has frozen so many objects.
func found(ctx context.Context, rm *appsv1.KsctlRemove, count int32) (digest string) {
	GinkgoHelper()
	tells(ctx, rm, metav1.ConditionFalse, bysource.AwaitingApprovalReason, fmt.Sprintf("%d objects would be removed", count))
	Expect(rm.Status.Removal.Count).To(Equal(count))
	Expect(rm.Status.Removed).To(BeNil())
	return rm.Status.Removal.Digest
}

func approve(ctx context.Context, rm *appsv1.KsctlRemove, digest string) {
	GinkgoHelper()
	change(ctx, rm, fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, digest))
}

// because is why a KsctlRemove leaves an object; empty when it does not say so.
func because(rm *appsv1.KsctlRemove, id string) string {
	for _, x := range rm.Status.Remaining {
		if x.ID == id {
			return x.Reason + ": " + x.Message
		}
	}
	return ""
}

// kubectl runs kubectl in a namespace, with something to read.
func kubectl(ctx context.Context, ns, stdin string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, h.Plane.Kubectl(), append([]string{"--kubeconfig", h.Plane.Kubeconfig(), "--namespace", ns}, args...)...)
	cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// inside names every object of a namespace but our own and what comes with it.
func inside(ctx context.Context, ns string) []string {
	GinkgoHelper()
	var all []string
	Eventually(ctx, func() (err error) {
		all, err = census(ctx)
		return err
	}, soon).Should(Succeed())
	return slices.DeleteFunc(all, func(s string) bool {
		return !strings.Contains(s, " "+ns+"/") || strings.HasPrefix(s, appsv1.GroupVersion.Group) ||
			s == "/ServiceAccount "+ns+"/default" || s == "/ConfigMap "+ns+"/kube-root-ca.crt"
	})
}

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "example.com/web:1", ports: [{containerPort: 80}], resources: {limits: {cpu: 1, memory: 1024Mi}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// What the stack has in its Secrets, and what somebody put into one instead.
var (
	hidden       = heard.Secret("hunter2-hunter2")
	hiddenTheirs = heard.Secret("theirs-theirs")
)

func password(value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {value: " + value + "}\n"
}

const twoSteps = "spec:\n  version: 1.0.0\n  components:\n  - {name: base, manifests: [base/]}\n  - {name: web, manifests: [web/], dependsOn: [base]}\n"

// applied publishes a stack and has kubectl apply what is in it.
func applied(ctx context.Context, ns string, files map[string]string) {
	GinkgoHelper()
	Expect(h.Publish(ctx, ns, "src", "r1", harness.Tree(twoSteps, files))).To(Succeed())
	for _, doc := range files {
		kubectl(ctx, ns, doc, "apply", "-f", "-")
	}
}

var _ = Describe("What kubectl applied", func() {
	It("goes from the definition of the stack alone, once its digest is approved", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := inside(ctx, ns)
		applied(ctx, ns, map[string]string{"base/a.yaml": configMap("a", "1"), "base/password.yaml": password(hidden),
			"base/changed.yaml": configMap("changed", "1"), "base/secret.yaml": strings.Replace(password(hidden), "name: password", "name: other", 1),
			"base/claim.yaml": claim, "web/web.yaml": web})
		kubectl(ctx, ns, "", "patch", "configmap/changed", "--type=merge", "-p", `{"data":{"value":"theirs"}}`)
		kubectl(ctx, ns, "", "patch", "secret/other", "--type=merge", "-p", `{"stringData":{"value":"`+hiddenTheirs+`"}}`)
		rm := removal(ctx, ns, "r")
		digest := found(ctx, rm, 4)
		Expect(rm.Status.Removal.Order).To(HaveLen(2), "web goes before base: %v", rm.Status.Removal.Order)
		Expect(rm.Status.Removal.Order[0].Objects).To(ConsistOf(ns+"_web_apps_Deployment", ns+"_web__Service"))
		Expect(because(rm, ns+"_changed__ConfigMap")).To(HavePrefix("NotMatched: data.value is not as the stack has it"))
		Expect(because(rm, ns+"_other__Secret")).To(HavePrefix("NotMatched: data.value is not as the stack has it"))
		Expect(because(rm, ns+"_data__PersistentVolumeClaim")).To(HavePrefix("Kept: "))

		By("approving something else")
		approve(ctx, rm, "0123abcd-0123456789abcdef")
		tells(ctx, rm, metav1.ConditionFalse, bysource.AwaitingApprovalReason, "is that of another set", digest)
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, quiet).Should(BeFalse())

		By("approving what was found")
		approve(ctx, rm, digest)
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "4 objects of the stack app were removed", "3 are left")
		Expect(*rm.Status.Removed).To(BeEquivalentTo(4))
		left := append(before, "/ConfigMap "+ns+"/changed", "/Secret "+ns+"/other", "/PersistentVolumeClaim "+ns+"/data")
		Eventually(ctx, func() []string { return inside(ctx, ns) }, soon).Should(ConsistOf(left))
		text, err := json.Marshal(rm)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(Or(ContainSubstring(hidden), ContainSubstring("theirs")))

		By("leaving it at that")
		was := rm.ResourceVersion
		kubectl(ctx, ns, configMap("a", "1"), "apply", "-f", "-")
		Consistently(ctx, func() string { Expect(get(ctx, rm)).To(Succeed()); return rm.ResourceVersion }, quiet).Should(Equal(was))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		remove(ctx, rm)
		gone(ctx, rm)
	}, SpecTimeout(15*time.Minute))

	It("stays where it was made anew since it was found, and where others have it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		applied(ctx, ns, map[string]string{"base/a.yaml": configMap("a", "1"), "base/b.yaml": configMap("b", "1"), "web/c.yaml": configMap("c", "1"), "base/d.yaml": configMap("d", "1")})
		change(ctx, aConfigMap(ns, "d"), `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"apps","kustomize.toolkit.fluxcd.io/namespace":"flux"}}}`)
		rm := removal(ctx, ns, "r")
		digest := found(ctx, rm, 3)
		Expect(because(rm, ns+"_d__ConfigMap")).To(Equal("NotMatched: it belongs to Flux Kustomization flux/apps"))
		remove(ctx, aConfigMap(ns, "a"))
		kubectl(ctx, ns, configMap("a", "1"), "apply", "-f", "-")
		change(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"x"}}}`)
		approve(ctx, rm, digest)
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "1 objects", "3 are left")
		Expect(because(rm, ns+"_a__ConfigMap")).To(HavePrefix("Left: it was made anew"))
		Expect(because(rm, ns+"_b__ConfigMap")).To(HavePrefix("Left: it belongs to Argo CD (x) by now"))
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
		for _, name := range []string{"a", "b", "d"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			Expect(cm.DeletionTimestamp).To(BeNil())
			Expect(cm.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		}
	}, SpecTimeout(15*time.Minute))

	It("is a definition that others have objects of, which stays or takes them along, as it is told", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "widgets."+group)}
		applied(ctx, ns, map[string]string{"base/crd.yaml": definition(group), "web/a.yaml": configMap("a", "1")})
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error { return h.Plane.Client().Create(ctx, theirs) }, soon).Should(Succeed(), "the kind is served")
		dependent := harness.Install(ns, "dependent")
		dependent.Spec.Suspend, dependent.Spec.DependsOn = true, []appsv1.Dependency{{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}}
		Expect(h.Plane.Client().Create(ctx, dependent)).To(Succeed())
		Eventually(ctx, func() error { return harness.Suspended(dependent) }, soon, "20ms").Should(Succeed(), "the controller knows of it")
		rm := removal(ctx, ns, "r")
		digest := found(ctx, rm, 2)
		Expect(rm.Status.Removal.Blockers).To(ConsistOf(HaveField("Message", ContainSubstring("that others made ("+ns+"/theirs)"))), "foreseen")
		Expect(rm.Status.Removal.Dependents).To(ConsistOf("KsctlInstall " + ns + "/dependent depends on ConfigMap " + ns + "/a"))
		approve(ctx, rm, digest)
		tells(ctx, rm, metav1.ConditionUnknown, reconcile.RemovingReason, "1 of 2 objects are left to remove", crd.Name, "that others made ("+ns+"/theirs)")
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())

		change(ctx, rm, `{"spec":{"customResources":"Delete"}}`)
		Eventually(ctx, func() string { return found(ctx, rm, 1) }, soon).ShouldNot(Equal(rm.Spec.ApprovedDigest), "another wish needs another approval")
		approve(ctx, rm, rm.Status.Removal.Digest)
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "1 objects of the stack app were removed")
		gone(ctx, crd)
	}, SpecTimeout(15*time.Minute))

	It("is released where the KsctlRemove is deleted before it is done", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		applied(ctx, ns, map[string]string{"base/a.yaml": configMap("a", "1"), "web/b.yaml": configMap("b", "1")})
		change(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"ksctl.com/prevent-deletion":"true"}}}`)
		rm := removal(ctx, ns, "r")
		digest := found(ctx, rm, 2)
		Expect(rm.Status.Removal.Blockers).To(ConsistOf(HaveField("ID", ns+"_b__ConfigMap")))
		approve(ctx, rm, digest)
		tells(ctx, rm, metav1.ConditionUnknown, reconcile.RemovingReason, "2 of 2 objects are left to remove", "ksctl.com/prevent-deletion")
		remove(ctx, rm)
		gone(ctx, rm)
		for _, name := range []string{"a", "b"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			Expect(cm.Annotations).NotTo(HaveKey(live.MarkAnnotation))
			Expect(cm.Labels).NotTo(HaveKey(live.OwnerLabel))
		}
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("A KsctlRemove of a stack that a KsctlInstall has", func() {
	It("finds nothing that counts and says whose it is", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.Publish(ctx, ns, "src", "r1", harness.Tree(harness.OneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))).To(Succeed())
		in := harness.Install(ns, "i")
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		becomesReady(ctx, in)
		rm := removal(ctx, ns, "r")
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "nothing that counts was found", "1 are left")
		Expect(because(rm, ns+"_a__ConfigMap")).To(Equal("NotMatched: it belongs to KsctlInstall " + ns + "/i"))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		becomesReady(ctx, in)
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("A namespace that a stack brought", func() {
	It("goes when it holds nothing else, and stays when it does", func(ctx SpecContext) {
		for _, foreign := range []bool{false, true} {
			ns := namespaceFor(ctx)
			space := ns + "-x"
			applied(ctx, ns, map[string]string{"base/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + space + "}\n"})
			kubectl(ctx, space, configMap("a", "1"), "apply", "-f", "-")
			Expect(h.Publish(ctx, ns, "src", "r2", harness.Tree(twoSteps, map[string]string{"base/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + space + "}\n",
				"web/a.yaml": strings.Replace(configMap("a", "1"), "{name: a}", "{name: a, namespace: "+space+"}", 1)}))).To(Succeed())
			if foreign {
				kubectl(ctx, space, configMap("theirs", "1"), "apply", "-f", "-")
			}
			rm := removal(ctx, ns, "r")
			digest := found(ctx, rm, 2)
			if foreign {
				Expect(rm.Status.Removal.Kept).To(ConsistOf(And(HaveField("ID", "_"+space+"__Namespace"), HaveField("Message", ContainSubstring("ConfigMap theirs is in it")))), "foreseen")
			} else {
				Expect(rm.Status.Removal.Kept).To(BeEmpty())
			}
			approve(ctx, rm, digest)
			tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason)
			Expect(absent(ctx, aConfigMap(space, "a"))).To(BeTrue())
			Expect(absent(ctx, &corev1.Namespace{ObjectMeta: named("", space)})).To(Equal(!foreign), "foreign: %v", foreign)
			if foreign {
				Expect(because(rm, "_"+space+"__Namespace")).To(ContainSubstring("ConfigMap theirs is in it"))
			}
		}
	}, SpecTimeout(15*time.Minute))
})
