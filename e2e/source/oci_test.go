package source_test

import (
	"context"
	"encoding/json"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/cluster/signatures"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// printedColumn returns the cell of a source in a column that kubectl prints.
func printedColumn(ctx context.Context, o client.Object, name string) any {
	GinkgoHelper()
	config := rest.CopyConfig(h.ControlPlane.Config())
	config.GroupVersion, config.APIPath = &appsv1.GroupVersion, "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	raw, err := c.Get().Namespace(o.GetNamespace()).Resource("ksctlsources").Name(o.GetName()).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	var table metav1.Table
	Expect(json.Unmarshal(raw, &table)).To(Succeed())
	for i, d := range table.ColumnDefinitions {
		if d.Name == name {
			return table.Rows[0].Cells[i]
		}
	}
	return nil
}

var _ = Describe("A KsctlSource of an OCI registry", func() {
	It("applies only artifacts with a trusted signature", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "oci")
		server, err := registry.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		push := func(value string) signatures.Artifact {
			GinkgoHelper()
			digest, err := server.Push(ctx, "team/fleet", "latest", artifacts.Files(stack(value)), "main@sha1:"+value)
			Expect(err).NotTo(HaveOccurred())
			return signatures.Artifact{Repository: server.Host() + "/team/fleet", Digest: digest}
		}
		key, err := signatures.NewKey()
		Expect(err).NotTo(HaveOccurred())
		pem, err := key.PEM()
		Expect(err).NotTo(HaveOccurred())
		framework.StartController(h)

		first, hour := push("1"), &metav1.Duration{Duration: time.Hour}
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour,
				RetryInterval: hour}, OCI: &appsv1.OCISource{
				URL: server.URL("team/fleet"), Insecure: true,
				Verify: &appsv1.OCIVerification{Provider: appsv1.Cosign,
					SecretRef: &fluxmeta.LocalObjectReference{Name: "trusted"}}}}}
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		in := harness.NewInstall(ns, "i")
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		reason := func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
			if ready := apimeta.FindStatusCondition(src.Status.Conditions, appsv1.ReadyCondition); ready != nil {
				return ready.Reason, err
			}
			return "", err
		}
		value := func() (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, cm)
			return cm.Data["value"], client.IgnoreNotFound(err)
		}
		Eventually(ctx, reason, soon).Should(Equal("SecretNotFound"), "no key is trusted yet")
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "trusted"},
			Data: map[string][]byte{"release.pub": pem}})).To(Succeed())
		Eventually(ctx, reason, soon).Should(Equal("SignatureMissing"), "the new Secret triggers a reconcile")
		Expect(value()).To(BeEmpty())

		Expect(key.SignWithReferrer(ctx, first)).To(Succeed())
		requestReconcile(ctx, src, "signed")
		Eventually(ctx, value, soon).Should(Equal("1"), "the signed artifact is installed")
		Expect(reason()).To(Equal("Succeeded"))
		Expect(src.Status.Artifact.Revision).To(Equal("latest@" + first.Digest))
		Expect(src.Status.Artifact.Metadata).
			To(HaveKeyWithValue("ksctl.com/signed-by", ContainSubstring("release.pub")))
		Expect(printedColumn(ctx, src, "URL")).To(Equal(src.Spec.OCI.URL))

		push("2")
		requestReconcile(ctx, src, "pushed")
		Eventually(ctx, reason, soon).Should(Equal("SignatureMissing"), "the next artifact is not signed")
		Expect(value()).To(Equal("1"))
		Expect(src.Status.Artifact.Revision).To(Equal("latest@"+first.Digest), "the verified artifact stays")

		for _, o := range []client.Object{in, src} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() error {
				return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
			}, soon).
				Should(MatchError(ContainSubstring("not found")), "%s is deleted", o.GetName())
		}
	})
})
