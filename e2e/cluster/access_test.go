package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

// readerManifest allows the ServiceAccount reader to read ConfigMaps.
const readerManifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ServiceAccount
  metadata: {name: reader, namespace: NS}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: reader, namespace: NS}
  rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
# nothing
`

func widget(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("e2e.ksctl.com/v1")
	u.SetKind("Widget")
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// newClient creates a client from a configuration.
func newClient(config *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// namespaceWithReader creates a namespace and applies readerManifest to it.
func namespaceWithReader(ctx context.Context) string {
	GinkgoHelper()
	ns := namespace(ctx)
	Expect(controlPlane.ApplyYAML(ctx, inNamespace(readerManifest, ns))).To(Succeed())
	return ns
}

var _ = Describe("Access", func() {
	It("authenticates as a ServiceAccount that RBAC limits", func(ctx SpecContext) {
		ns := namespaceWithReader(ctx)
		config, err := controlPlane.ConfigFor(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		c := newClient(config)

		list := &corev1.ConfigMapList{}
		Expect(c.List(ctx, list, client.InNamespace(ns))).To(Succeed())
		Expect(list.Items).To(ContainElement(HaveField("Name", "kube-root-ca.crt")))

		Expect(apierrors.IsForbidden(c.List(ctx, list, client.InNamespace("default")))).
			To(BeTrue(), "another namespace")
		Expect(apierrors.IsForbidden(c.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)))).
			To(BeTrue(), "another resource")
		err = c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "new"}})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "another verb")
	})

	It("returns NotFound with the name of a missing ServiceAccount", func(ctx SpecContext) {
		_, err := controlPlane.ConfigFor(ctx, "default", "nobody")
		Expect(err).To(MatchError(ContainSubstring("default/nobody")))
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})

	It("authenticates as any user by client certificate", func(ctx SpecContext) {
		config, err := controlPlane.ConfigForUser("jane", "developers")
		Expect(err).NotTo(HaveOccurred())
		err = newClient(config).List(ctx, &corev1.SecretList{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("jane")))
	})

	It("writes kubeconfig files that kubectl accepts", func(ctx SpecContext) {
		ns := namespaceWithReader(ctx)
		file, err := controlPlane.KubeconfigFor(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		for path, user := range map[string]string{
			file:                      cluster.ServiceAccountUser(ns, "reader"),
			controlPlane.Kubeconfig(): cluster.AdminUser,
		} {
			kubectl := exec.CommandContext(ctx, controlPlane.Kubectl(), "--kubeconfig", path, "auth", "whoami", "-o",
				"jsonpath={.status.userInfo.username}")
			kubectl.Env = []string{"HOME=" + GinkgoT().TempDir()}
			output, err := kubectl.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			Expect(string(output)).To(Equal(user))
		}
	})
})

var _ = Describe("Apply", func() {
	It("applies the namespace and the CRD of a folder before their objects", func(ctx SpecContext) {
		Expect(controlPlane.Apply(ctx, "testdata/manifests")).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(controlPlane.Client().
				Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manifests"}})).To(Succeed())
		})
		gadget := widget("cluster-manifests", "one")
		gadget.SetKind("Gadget")
		Expect(controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(gadget), gadget)).To(Succeed())
		Expect(controlPlane.Apply(ctx, "testdata/manifests")).To(Succeed(), "a second time")
	})

	It("builds a kustomization", func(ctx SpecContext) {
		ns, dir := namespace(ctx), GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"),
			[]byte("namespace: "+ns+"\nnamePrefix: pre-\nresources: [map.yaml]\n"), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "map.yaml"),
			[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"), 0o600)).To(Succeed())
		Expect(controlPlane.Apply(ctx, dir)).To(Succeed())
		Expect(controlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "pre-settings"},
			&corev1.ConfigMap{})).To(Succeed())
	})

	It("names the object that it failed to apply", func(ctx SpecContext) {
		err := controlPlane.ApplyYAML(ctx,
			[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER, namespace: default}\n"))
		Expect(err).To(MatchError(ContainSubstring("ConfigMap default/UPPER")))
		Expect(controlPlane.Apply(ctx, GinkgoT().TempDir())).To(MatchError(ContainSubstring("no manifests")))
	})
})
