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

// readerManifest gives the ServiceAccount reader the right to read ConfigMaps.
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

// connect makes a client from a configuration.
func connect(config *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// reader makes a namespace with the account of readerManifest.
func reader(ctx context.Context) string {
	GinkgoHelper()
	ns := namespace(ctx)
	Expect(plane.ApplyYAML(ctx, inNamespace(readerManifest, ns))).To(Succeed())
	return ns
}

var _ = Describe("Access", func() {
	It("acts as a ServiceAccount, and RBAC limits it", func(ctx SpecContext) {
		ns := reader(ctx)
		config, err := plane.ConfigFor(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		c := connect(config)

		list := &corev1.ConfigMapList{}
		Expect(c.List(ctx, list, client.InNamespace(ns))).To(Succeed())
		Expect(list.Items).To(ContainElement(HaveField("Name", "kube-root-ca.crt")))

		Expect(apierrors.IsForbidden(c.List(ctx, list, client.InNamespace("default")))).To(BeTrue(), "another namespace")
		Expect(apierrors.IsForbidden(c.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)))).To(BeTrue(), "another resource")
		err = c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "new"}})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "another verb")
	})

	It("names a ServiceAccount that does not exist", func(ctx SpecContext) {
		_, err := plane.ConfigFor(ctx, "default", "nobody")
		Expect(err).To(MatchError(ContainSubstring("default/nobody")))
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})

	It("acts as any user with a certificate", func(ctx SpecContext) {
		config, err := plane.ConfigForUser("jane", "developers")
		Expect(err).NotTo(HaveOccurred())
		err = connect(config).List(ctx, &corev1.SecretList{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("jane")))
	})

	It("writes kubeconfig files that kubectl takes", func(ctx SpecContext) {
		ns := reader(ctx)
		file, err := plane.KubeconfigFor(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		for path, user := range map[string]string{
			file:               cluster.ServiceAccountUser(ns, "reader"),
			plane.Kubeconfig(): cluster.AdminUser,
		} {
			kubectl := exec.CommandContext(ctx, plane.Kubectl(), "--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
			kubectl.Env = []string{"HOME=" + GinkgoT().TempDir()}
			output, err := kubectl.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			Expect(string(output)).To(Equal(user))
		}
	})
})

var _ = Describe("Apply", func() {
	It("applies a folder, the namespace and the CRD before their objects", func(ctx SpecContext) {
		Expect(plane.Apply(ctx, "testdata/manifests")).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(plane.Client().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rig-manifests"}})).To(Succeed())
		})
		gadget := widget("rig-manifests", "one")
		gadget.SetKind("Gadget")
		Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(gadget), gadget)).To(Succeed())
		Expect(plane.Apply(ctx, "testdata/manifests")).To(Succeed(), "a second time")
	})

	It("builds a kustomization", func(ctx SpecContext) {
		ns, dir := namespace(ctx), GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"),
			[]byte("namespace: "+ns+"\nnamePrefix: pre-\nresources: [map.yaml]\n"), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "map.yaml"),
			[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"), 0o600)).To(Succeed())
		Expect(plane.Apply(ctx, dir)).To(Succeed())
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "pre-settings"}, &corev1.ConfigMap{})).To(Succeed())
	})

	It("names what it could not apply", func(ctx SpecContext) {
		err := plane.ApplyYAML(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER, namespace: default}\n"))
		Expect(err).To(MatchError(ContainSubstring("ConfigMap default/UPPER")))
		Expect(plane.Apply(ctx, GinkgoT().TempDir())).To(MatchError(ContainSubstring("no manifests")))
	})
})
