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
	"github.com/ksctl/gitops/e2e/harness"
)

// newRemoveBySource creates a KsctlRemove of stack "app" of source "src".
func newRemoveBySource(ctx context.Context, ns, name string, change ...func(*appsv1.KsctlRemove)) *appsv1.KsctlRemove {
	GinkgoHelper()
	hour := &metav1.Duration{Duration: time.Hour}
	rm := &appsv1.KsctlRemove{ObjectMeta: objectMeta(ns, name), Spec: appsv1.KsctlRemoveSpec{
		Schedule:  appsv1.Schedule{Interval: hour, RetryInterval: &metav1.Duration{Duration: time.Second}},
		SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
		ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(rm)
	}
	Expect(h.ControlPlane.Client().Create(ctx, rm)).To(Succeed())
	return rm
}

// removeBySourceReports waits until the Ready condition of a KsctlRemove has exactly a status
// and a reason, and its message contains all texts.
func removeBySourceReports(ctx context.Context, rm *appsv1.KsctlRemove, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, rm); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(rm.Status.Conditions, appsv1.ReadyCondition)
		if c == nil {
			return "no Ready condition"
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
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "%s reports %s/%s", rm.Name, status, reason)
}

// awaitPreview waits until a KsctlRemove has a preview of a number of objects, and returns its
// digest.
func awaitPreview(ctx context.Context, rm *appsv1.KsctlRemove, count int32) (digest string) {
	GinkgoHelper()
	removeBySourceReports(ctx, rm, metav1.ConditionFalse, appsv1.AwaitingApprovalReason,
		fmt.Sprintf("%d objects would be removed", count))
	Expect(rm.Status.Removal.Count).To(Equal(count))
	Expect(rm.Status.Removed).To(BeNil())
	return rm.Status.Removal.Digest
}

func approve(ctx context.Context, rm *appsv1.KsctlRemove, digest string) {
	GinkgoHelper()
	mergePatch(ctx, rm, fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, digest))
}

// remainingReason returns why a KsctlRemove keeps an object, or "" if that is not reported.
func remainingReason(rm *appsv1.KsctlRemove, id string) string {
	for _, x := range rm.Status.Remaining {
		if x.ID == id {
			return x.Reason + ": " + x.Message
		}
	}
	return ""
}

// kubectl runs kubectl in a namespace, with standard input, and returns its output.
func kubectl(ctx context.Context, ns, stdin string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, h.ControlPlane.Kubectl(),
		append([]string{"--kubeconfig", h.ControlPlane.Kubeconfig(), "--namespace", ns}, args...)...)
	cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// objectsIn returns the objects in a namespace, except ours and those of each new namespace.
func objectsIn(ctx context.Context, ns string) []string {
	GinkgoHelper()
	var all []string
	Eventually(ctx, func() (err error) {
		all, err = listAllObjects(ctx)
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

// stackSecret is the value of the Secrets in the stack, changedSecret that of another writer.
var (
	stackSecret   = scanner.AddSecret("hunter2-hunter2")
	changedSecret = scanner.AddSecret("theirs-theirs")
)

func password(value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {value: " + value + "}\n"
}

const twoComponents = "spec:\n  version: 1.0.0\n  components:\n  - {name: base, manifests: [base/]}\n  - {name: web, " +
	"manifests: [web/], dependsOn: [base]}\n"

// applyWithKubectl publishes a stack and applies its files with kubectl.
func applyWithKubectl(ctx context.Context, ns string, files map[string]string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(twoComponents, files))).To(Succeed())
	for _, doc := range files {
		kubectl(ctx, ns, doc, "apply", "-f", "-")
	}
}

var _ = Describe("Objects that kubectl applied", func() {
	It("are removed by a KsctlRemove of the stack alone, after the approval of its digest", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		before := objectsIn(ctx, ns)
		applyWithKubectl(ctx, ns, map[string]string{"base/a.yaml": configMap("a", "1"),
			"base/password.yaml": password(stackSecret),
			"base/changed.yaml":  configMap("changed", "1"),
			"base/secret.yaml":   strings.Replace(password(stackSecret), "name: password", "name: other", 1),
			"base/claim.yaml":    claim, "web/web.yaml": web})
		kubectl(ctx, ns, "", "patch", "configmap/changed", "--type=merge", "-p", `{"data":{"value":"theirs"}}`)
		kubectl(ctx, ns, "", "patch", "secret/other", "--type=merge", "-p", `{"stringData":{"value":"`+changedSecret+
			`"}}`)
		rm := newRemoveBySource(ctx, ns, "r")
		digest := awaitPreview(ctx, rm, 4)
		Expect(rm.Status.Removal.Order).To(HaveLen(2), "web is removed before base: %v", rm.Status.Removal.Order)
		Expect(rm.Status.Removal.Order[0].Objects).To(ConsistOf(ns+"_web_apps_Deployment", ns+"_web__Service"))
		Expect(remainingReason(rm, ns+"_changed__ConfigMap")).
			To(HavePrefix("NotMatched: data.value differs from the stack"))
		Expect(remainingReason(rm, ns+"_other__Secret")).To(HavePrefix("NotMatched: data.value differs from the stack"))
		Expect(remainingReason(rm, ns+"_data__PersistentVolumeClaim")).To(HavePrefix("Kept: "))

		By("approving another digest")
		approve(ctx, rm, "0123abcd-0123456789abcdef")
		removeBySourceReports(ctx, rm, metav1.ConditionFalse, appsv1.AwaitingApprovalReason,
			"does not match the objects that were found", digest)
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, quiet).Should(BeFalse())

		By("approving the preview")
		approve(ctx, rm, digest)
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason,
			"4 objects of the stack app were removed", "3 are left")
		Expect(*rm.Status.Removed).To(BeEquivalentTo(4))
		left := append(before, "/ConfigMap "+ns+"/changed", "/Secret "+ns+"/other", "/PersistentVolumeClaim "+ns+
			"/data")
		Eventually(ctx, func() []string { return objectsIn(ctx, ns) }, soon).Should(ConsistOf(left))
		text, err := json.Marshal(rm)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(Or(ContainSubstring(stackSecret), ContainSubstring("theirs")))

		By("not removing objects that are created afterwards")
		was := rm.ResourceVersion
		kubectl(ctx, ns, configMap("a", "1"), "apply", "-f", "-")
		Consistently(ctx, func() string { Expect(get(ctx, rm)).To(Succeed()); return rm.ResourceVersion }, quiet).
			Should(Equal(was))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		remove(ctx, rm)
		awaitGone(ctx, rm)
	}, SpecTimeout(15*time.Minute))

	It("stay if they were recreated after the preview, or have another owner", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		applyWithKubectl(ctx, ns, map[string]string{"base/a.yaml": configMap("a", "1"),
			"base/b.yaml": configMap("b", "1"), "web/c.yaml": configMap("c", "1"), "base/d.yaml": configMap("d", "1")})
		mergePatch(ctx, aConfigMap(ns, "d"),
			`{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"apps","kustomize.toolkit.fluxcd.io/namespace":"flux"}}}`)
		rm := newRemoveBySource(ctx, ns, "r")
		digest := awaitPreview(ctx, rm, 3)
		Expect(remainingReason(rm, ns+"_d__ConfigMap")).To(Equal("NotMatched: belongs to Flux Kustomization flux/apps"))
		remove(ctx, aConfigMap(ns, "a"))
		kubectl(ctx, ns, configMap("a", "1"), "apply", "-f", "-")
		mergePatch(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"x"}}}`)
		approve(ctx, rm, digest)
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason, "1 objects", "3 are left")
		Expect(remainingReason(rm, ns+"_a__ConfigMap")).To(HavePrefix("Left: it was recreated"))
		Expect(remainingReason(rm, ns+"_b__ConfigMap")).To(HavePrefix("Left: it belongs to Argo CD (x) now"))
		Expect(absent(ctx, aConfigMap(ns, "c"))).To(BeTrue())
		for _, name := range []string{"a", "b", "d"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			Expect(cm.DeletionTimestamp).To(BeNil())
			Expect(cm.Annotations).NotTo(HaveKey(live.MarkAnnotation))
		}
	}, SpecTimeout(15*time.Minute))

	It("include a CRD with objects of other owners, which is kept or deleted according to "+
		"spec.customResources", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := ns + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: objectMeta("", "widgets."+group)}
		applyWithKubectl(ctx, ns,
			map[string]string{"base/crd.yaml": definition(group), "web/a.yaml": configMap("a", "1")})
		theirs := widget(group, ns, "theirs")
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Create(ctx, theirs)
		}, soon).Should(Succeed(), "the kind is served")
		dependent := harness.NewInstall(ns, "dependent")
		dependent.Spec.Suspend, dependent.Spec.DependsOn = true,
			[]appsv1.Dependency{{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}}
		Expect(h.ControlPlane.Client().Create(ctx, dependent)).To(Succeed())
		Eventually(ctx, func() error {
			return harness.CheckSuspended(dependent)
		}, soon, "20ms").Should(Succeed(), "the controller has observed it")
		rm := newRemoveBySource(ctx, ns, "r")
		digest := awaitPreview(ctx, rm, 2)
		Expect(rm.Status.Removal.Blockers).
			To(ConsistOf(HaveField("Message", ContainSubstring("that others created ("+ns+"/theirs)"))),
				"in the preview")
		Expect(rm.Status.Removal.Dependents).
			To(ConsistOf("KsctlInstall " + ns + "/dependent depends on ConfigMap " + ns + "/a"))
		approve(ctx, rm, digest)
		removeBySourceReports(ctx, rm, metav1.ConditionUnknown, appsv1.RemovingReason,
			"1 of 2 objects are left to remove", crd.Name, "that others created ("+ns+"/theirs)")
		Expect(get(ctx, crd)).To(Succeed())
		Expect(crd.DeletionTimestamp).To(BeNil())

		mergePatch(ctx, rm, `{"spec":{"customResources":"Delete"}}`)
		Eventually(ctx, func() string {
			return awaitPreview(ctx, rm, 1)
		}, soon).ShouldNot(Equal(rm.Spec.ApprovedDigest), "another spec needs another approval")
		approve(ctx, rm, rm.Status.Removal.Digest)
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason,
			"1 objects of the stack app were removed")
		awaitGone(ctx, crd)
	}, SpecTimeout(15*time.Minute))

	It("are released if the KsctlRemove is deleted before it completes", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		applyWithKubectl(ctx, ns,
			map[string]string{"base/a.yaml": configMap("a", "1"), "web/b.yaml": configMap("b", "1")})
		mergePatch(ctx, aConfigMap(ns, "b"), `{"metadata":{"annotations":{"ksctl.com/prevent-deletion":"true"}}}`)
		rm := newRemoveBySource(ctx, ns, "r")
		digest := awaitPreview(ctx, rm, 2)
		Expect(rm.Status.Removal.Blockers).To(ConsistOf(HaveField("ID", ns+"_b__ConfigMap")))
		approve(ctx, rm, digest)
		removeBySourceReports(ctx, rm, metav1.ConditionUnknown, appsv1.RemovingReason,
			"2 of 2 objects are left to remove", "ksctl.com/prevent-deletion")
		remove(ctx, rm)
		awaitGone(ctx, rm)
		for _, name := range []string{"a", "b"} {
			cm := aConfigMap(ns, name)
			Expect(get(ctx, cm)).To(Succeed())
			Expect(cm.Annotations).NotTo(HaveKey(live.MarkAnnotation))
			Expect(cm.Labels).NotTo(HaveKey(live.OwnerLabel))
		}
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("A KsctlRemove of a stack that a KsctlInstall has installed", func() {
	It("removes nothing and reports the owner", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		Expect(h.PublishSource(ctx, ns, "src", "r1",
			harness.SourceTree(harness.OneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))).
			To(Succeed())
		in := harness.NewInstall(ns, "i")
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		becomesReady(ctx, in)
		rm := newRemoveBySource(ctx, ns, "r")
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason, "no matching objects of the stack",
			"1 are left")
		Expect(remainingReason(rm, ns+"_a__ConfigMap")).To(Equal("NotMatched: belongs to KsctlInstall " + ns + "/i"))
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())
		becomesReady(ctx, in)
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("A namespace of a stack", func() {
	It("is deleted when it has no other objects, and kept when it has", func(ctx SpecContext) {
		for _, foreign := range []bool{false, true} {
			ns := namespaceFor(ctx)
			space := ns + "-x"
			applyWithKubectl(ctx, ns,
				map[string]string{"base/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + space +
					"}\n"})
			kubectl(ctx, space, configMap("a", "1"), "apply", "-f", "-")
			Expect(h.PublishSource(ctx, ns, "src", "r2",
				harness.SourceTree(twoComponents, map[string]string{"base/namespace.yaml": "apiVersion: v1\nkind: " +
					"Namespace\nmetadata: {name: " + space + "}\n",
					"web/a.yaml": strings.Replace(configMap("a", "1"), "{name: a}", "{name: a, namespace: "+space+"}",
						1)}))).To(Succeed())
			if foreign {
				kubectl(ctx, space, configMap("theirs", "1"), "apply", "-f", "-")
			}
			rm := newRemoveBySource(ctx, ns, "r")
			digest := awaitPreview(ctx, rm, 2)
			if foreign {
				Expect(rm.Status.Removal.Kept).
					To(ConsistOf(And(HaveField("ID", "_"+space+"__Namespace"),
						HaveField("Message", ContainSubstring("ConfigMap theirs is in the namespace")))),
						"in the preview")
			} else {
				Expect(rm.Status.Removal.Kept).To(BeEmpty())
			}
			approve(ctx, rm, digest)
			removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason)
			Expect(absent(ctx, aConfigMap(space, "a"))).To(BeTrue())
			Expect(absent(ctx, &corev1.Namespace{ObjectMeta: objectMeta("", space)})).
				To(Equal(!foreign), "foreign: %v", foreign)
			if foreign {
				Expect(remainingReason(rm, "_"+space+"__Namespace")).
					To(ContainSubstring("ConfigMap theirs is in the namespace"))
			}
		}
	}, SpecTimeout(15*time.Minute))
})
