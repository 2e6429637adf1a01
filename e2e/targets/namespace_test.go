package targets_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/suite"
)

// createReader creates the account "reader" of a namespace, which may read the Secrets of another
// one.
func createReader(ctx context.Context, ns, secrets string) *rbacv1.RoleBinding {
	GinkgoHelper()
	create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}})
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: secrets, Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "reader"}}}
	create(ctx, binding)
	return binding
}

// finalizers returns the finalizers of an object.
func finalizers(ctx context.Context, o client.Object) func() ([]string, error) {
	return func() ([]string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.GetFinalizers(), err
	}
}

var _ = Describe("A namespace with a kubeconfig that is deleted", suite.Safety, func() {
	It("ends when what was installed with it is removed, though the account and its permissions are "+
		"deleted first", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		binding := createReader(ctx, here, here)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "access"},
			StringData: map[string]string{"value": kubeconfig(remote)}}
		create(ctx, secret)
		Expect(finalizers(ctx, secret)()).To(BeEmpty())
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		in := install(here, "app", there)
		in.Spec.ClusterRef, in.Spec.KubeConfig = nil,
			&appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "access"}}
		in.Spec.ServiceAccountName = "reader"
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Eventually(ctx, finalizers(ctx, secret), soon).Should(ConsistOf(appsv1.Finalizer))

		By("deleting the namespace while the controller does not run")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here}}
		restart(func() {
			Expect(h.ControlPlane.Client().Delete(ctx, ns)).To(Succeed())
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), binding), soon).Should(BeTrue())
			Eventually(ctx, func() (*metav1.Time, error) {
				err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(secret), secret)
				return secret.DeletionTimestamp, err
			}, soon).ShouldNot(BeNil())
		})
		for _, o := range []client.Object{in, secret, ns} {
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), o), soon).Should(BeTrue())
		}
		Expect(configMapValues(ctx, remote.Client(), there)()).To(BeEmpty())
	})

	It("names the installs of other namespaces that use its cluster, and ends after them", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		elsewhere, _ := createNamespaces(ctx)
		binding := createReader(ctx, elsewhere, here)
		c := createProdCluster(ctx, here)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}}
		publish(ctx, elsewhere, "main@sha1:1", map[string]string{"a": "one"})
		in := install(elsewhere, "app", there)
		in.Spec.ClusterRef.Namespace, in.Spec.ServiceAccountName = here, "reader"
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Eventually(ctx, finalizers(ctx, secret), soon).Should(ConsistOf(appsv1.Finalizer))

		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here}}
		Expect(h.ControlPlane.Client().Delete(ctx, ns)).To(Succeed())
		Eventually(ctx, readySummary(ctx, c), soon).
			Should(HavePrefix("Unknown InUse: in use by KsctlInstall " + elsewhere + "/app"))
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), binding), soon).Should(BeTrue())
		Expect(configMapValues(ctx, remote.Client(), there)()).To(HaveKey("a"))
		restart(func() {})
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		for _, o := range []client.Object{in, c, secret, ns} {
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), o), soon).Should(BeTrue())
		}
		Expect(configMapValues(ctx, remote.Client(), there)()).To(BeEmpty())
	})
})
