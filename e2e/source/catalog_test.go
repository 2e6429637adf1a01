package source_test

import (
	"context"
	"fmt"
	"strings"
	"testing/fstest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("The catalog", func() {
	It("has the shipped stacks, in the stackVersion of an install, and others from its "+
		"registry", func(ctx SpecContext) {
		oci, err := registry.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(oci.Close)
		ns := framework.Namespace(ctx, h, "catalog")
		framework.StartController(h, "--owner-id="+ns, "--watch-label-selector=spec="+ns, "--catalog-url=oci://"+
			oci.Host()+"/catalog", "--catalog-insecure")
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant",
			Labels: map[string]string{"spec": ns}},
			Spec: appsv1.KsctlInstallSpec{SourceRef: appsv1.SourceRef{Kind: appsv1.CatalogKind}, Stack: "tenant",
				StackVersion: "1.0.0", ServiceAccountName: harness.Deployer}}
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		reports(ctx, in, "True", "tenant@1.0.0")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"}}
		hard := func() string {
			Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			cpu := quota.Spec.Hard["requests.cpu"]
			return cpu.String()
		}
		Expect(hard()).To(HaveSuffix("4"))
		patch(ctx, in, `{"spec":{"components":[{"name":"bounds","override":{"cpu":"7"}}]}}`)
		Eventually(ctx, hard, soon, "50ms").Should(HaveSuffix("7"))

		By("a version that does not exist")
		patch(ctx, in, `{"spec":{"stackVersion":"2.0.0"}}`)
		reports(ctx, in, "False", `no version "2.0.0"`)
		Expect(hard()).To(HaveSuffix("7"), "the installed version stays")

		By("publishing that version")
		_, err = oci.Push(ctx, "catalog/tenant", "2.0.0", fstest.MapFS{
			"stack.yaml": {Data: []byte("apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: tenant}\n" +
				"spec:\n  version: 2.0.0\n  components:\n  - {name: bounds, manifests: [a.yaml]}\n")},
			"a.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\n")}}, "r")
		Expect(err).NotTo(HaveOccurred())
		patch(ctx, in, `{"spec":{"components":null},"metadata":{"annotations":{"`+appsv1.RequestedAtAnnotation+
			`":"now"}}}`)
		reports(ctx, in, "True", "tenant@2.0.0")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "two"}, &corev1.ConfigMap{})).
			To(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
		}, soon, "50ms").ShouldNot(Succeed(), "the install is deleted")
	})

	It("requires a version, and rejects name, namespace and path", func(ctx SpecContext) {
		for says, change := range map[string]func(*appsv1.KsctlInstallSpec){
			"stackVersion is required": func(s *appsv1.KsctlInstallSpec) { s.StackVersion = "" },
			"path is not allowed":      func(s *appsv1.KsctlInstallSpec) { s.Path = "stacks" },
			"neither name nor":         func(s *appsv1.KsctlInstallSpec) { s.SourceRef.Name = "x" },
			"name is required":         func(s *appsv1.KsctlInstallSpec) { s.SourceRef.Kind = "KsctlSource" },
		} {
			in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"},
				Spec: appsv1.KsctlInstallSpec{SourceRef: appsv1.SourceRef{Kind: appsv1.CatalogKind}, Stack: "tenant",
					StackVersion: "1.0.0"}}
			Expect(h.ControlPlane.Client().Create(ctx, in.DeepCopy(), client.DryRunAll)).To(Succeed())
			change(&in.Spec)
			Expect(h.ControlPlane.Client().Create(ctx, in, client.DryRunAll)).To(MatchError(ContainSubstring(says)))
		}
	})
})

func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(body)))).
		To(Succeed())
}

// reports waits until the Ready condition of an install has a status and its message contains a
// text.
func reports(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, text string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in); err != nil {
			return err.Error()
		}
		c := harness.ReadyCondition(in)
		if c.Status == status && in.Status.ObservedGeneration == in.Generation && strings.Contains(c.Message, text) {
			return ""
		}
		return fmt.Sprintf("Ready is %s/%s: %s", c.Status, c.Reason, c.Message)
	}, soon, 50*time.Millisecond).Should(BeEmpty())
}
