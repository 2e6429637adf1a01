package state_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks/state"
)

// argocd is the namespace in --argocd-namespaces.
const argocd = "argocd"

// reachableState returns the state of a cluster with a valid kubeconfig.
func reachableState(name, kubeconfig string) string {
	GinkgoHelper()
	var doc map[string]any
	Expect(json.Unmarshal([]byte(document(name, "alive")), &doc)).To(Succeed())
	doc["cluster_kubeconfig"], doc["bootstrap_provider"] = kubeconfig, "k3s"
	out, err := json.Marshal(doc)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// kubeconfigOf returns the kubeconfig of a control plane, and registers its key with the scanner.
func kubeconfigOf(plane *cluster.Cluster) string {
	GinkgoHelper()
	data, err := os.ReadFile(plane.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	scanner.AddSecret(base64.StdEncoding.EncodeToString(plane.Config().KeyData))
	return string(data)
}

// clusterReady is like importReady, for a cluster.
func clusterReady(ctx context.Context, c *clusterv1.KsctlCluster) func() (string, error) {
	return func() (string, error) {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		ready := apimeta.FindStatusCondition(c.Status.Conditions, appsv1.ReadyCondition)
		if ready == nil || ready.ObservedGeneration != c.Generation {
			return "", nil
		}
		return string(ready.Status) + " " + ready.Reason + ": " + ready.Message, nil
	}
}

func clusterOf(ns, name string, spec clusterv1.KsctlClusterSpec) *clusterv1.KsctlCluster {
	spec.ServiceAccountName = harness.Deployer
	return &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
}

func secretOf(ctx context.Context, ns, name string) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		var s corev1.Secret
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &s)
		out := map[string]string{}
		for key, value := range s.Data {
			out[key] = string(value)
		}
		return out, err
	}
}

func absent(ctx context.Context, o client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o))
	}
}

var _ = Describe("A KsctlCluster", func() {
	It("is created from an import, is probed, and follows changes by ksctl", func(ctx SpecContext) {
		remote := framework.StartCluster(ctx, cluster.Options{Nodes: 3, NoScheduler: true})
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": reachableState("demo-eu", kubeconfigOf(remote))})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.Publish = &v1alpha1.ClusterPublication{KubeConfig: true}
		})
		create(ctx, in)

		By("probing it")
		c := clusterOf(ns, "demo-eu", clusterv1.KsctlClusterSpec{})
		Eventually(ctx, clusterReady(ctx, c), soon).
			Should(And(HavePrefix("True ReconciliationSucceeded: reachable with v1."),
				HaveSuffix(" and 3 nodes; kubeconfig in Secret demo-eu-kubeconfig")))
		Expect(c.Spec.ImportRef).To(HaveValue(Equal(clusterv1.ClusterImport{Name: "import", Key: keyOf("demo-eu")})))
		Expect(c.Labels).
			To(And(HaveKeyWithValue(clusterv1.CloudLabel, "civo"), HaveKeyWithValue(clusterv1.RegionLabel, "LON1"),
				HaveKeyWithValue(clusterv1.TypeLabel, "ha"), HaveKeyWithValue(clusterv1.DistributionLabel, "k3s")))
		Expect(c.Status.Facts.Name).To(Equal("demo-eu"))
		Expect(c.Status.KubeConfigExpires.After(time.Now())).To(BeTrue())
		Expect(apimeta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ReachableCondition)).To(BeTrue())

		By("using its kubeconfig like Flux does")
		data, err := secretOf(ctx, ns, "demo-eu-kubeconfig")()
		Expect(err).NotTo(HaveOccurred())
		cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(data["value"]))
		Expect(err).NotTo(HaveOccurred())
		set, err := kubernetes.NewForConfig(cfg)
		Expect(err).NotTo(HaveOccurred())
		nodes, err := set.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes.Items).To(HaveLen(3))

		By("rotating the kubeconfig in the store, like ksctl does")
		other, err := remote.ConfigForUser("rotated", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		path, err := remote.WriteKubeconfig("rotated", other)
		Expect(err).NotTo(HaveOccurred())
		rotated, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		store := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: state.StoreConfigMap}}
		patch(ctx, store,
			fmt.Sprintf(`{"binaryData":{%q:%q}}`, keyOf("demo-eu"),
				encoded(reachableState("demo-eu", string(rotated)))))
		Eventually(ctx, secretOf(ctx, ns, "demo-eu-kubeconfig"), soon).
			Should(HaveKeyWithValue("value", ContainSubstring(base64.StdEncoding.EncodeToString(other.CertData))))

		By("restoring its deleted Secret")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "demo-eu-kubeconfig"}}
		Expect(h.ControlPlane.Client().Delete(ctx, secret)).To(Succeed())
		Eventually(ctx, secretOf(ctx, ns, "demo-eu-kubeconfig"), soon).Should(HaveKey("value"))

		By("stopping its API server")
		Expect(remote.StopAPIServer()).To(Succeed())
		patch(ctx, c, fmt.Sprintf(`{"metadata":{"annotations":{%q:"down"}}}`, appsv1.RequestedAtAnnotation))
		Eventually(ctx, func() (string, error) {
			_, err := clusterReady(ctx, c)()
			return c.Status.LastHandledReconcileAt, err
		}, soon).Should(Equal("down"))
		Eventually(ctx, clusterReady(ctx, c), soon).
			Should(Equal("False Unreachable: probing API server "+c.Status.Server+": connection refused"),
				"the first probe may use the connection that was closed")
		Expect(secretOf(ctx, ns, "demo-eu-kubeconfig")()).To(HaveKey("value"), "the cluster may come back")
		Expect(remote.StartAPIServer(ctx)).To(Succeed())
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "), "without a request")

		By("deleting it")
		Expect(h.ControlPlane.Client().Delete(ctx, c)).To(Succeed())
		Eventually(ctx, absent(ctx, c), soon).Should(BeTrue())
		Expect(absent(ctx, secret)()).To(BeTrue())
	})

	It("needs only the permissions in the docs, and is deleted with its import", func(ctx SpecContext) {
		ns := namespace(ctx)
		for page, at := range map[string]string{"docs/clusters.md": "The kubeconfig",
			"docs/state.md": "What is written"} {
			blocks, err := harness.CodeBlocks(page, at, "yaml")
			Expect(err).NotTo(HaveOccurred())
			rights := blocks[len(blocks)-1]
			Expect(rights).To(ContainSubstring("kind: RoleBinding"))
			Expect(h.ControlPlane.ApplyYAML(ctx,
				[]byte(strings.NewReplacer("namespace: team", "namespace: "+ns, "namespace: ksctl", "namespace: "+ns).
					Replace(rights)))).To(Succeed())
		}
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": reachableState("one", kubeconfigOf(h.ControlPlane)),
				"clusters/b.json": reachableState("two", kubeconfigOf(h.ControlPlane))})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.ServiceAccountName, s.DeletionPolicy, s.Publish = "importer", v1alpha1.DeleteState,
				&v1alpha1.ClusterPublication{KubeConfig: true}
			s.RetryInterval = &metav1.Duration{Duration: time.Second} // permissions take effect with a delay
		})
		create(ctx, in)
		one, two := clusterOf(ns, "one", clusterv1.KsctlClusterSpec{}),
			clusterOf(ns, "two", clusterv1.KsctlClusterSpec{})
		for _, c := range []*clusterv1.KsctlCluster{one, two} {
			Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "))
			Expect(c.Spec.ServiceAccountName).To(Equal("importer"))
		}

		By("deleting the import with its clusters, except one that no longer refers to it")
		mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"},
			StringData: map[string]string{"value": kubeconfigOf(h.ControlPlane)}}
		create(ctx, mine)
		patch(ctx, one, `{"spec":{"importRef":null,"kubeConfigRef":{"name":"mine"}}}`)
		Eventually(ctx, clusterReady(ctx, one), soon).
			Should(And(HavePrefix("True "), HaveSuffix("kubeconfig in Secret mine")))
		Expect(absent(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one-kubeconfig"}})()).
			To(BeTrue())
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, in), soon).Should(BeTrue())
		Expect(absent(ctx, two)()).To(BeTrue(), "the cluster is deleted before its state")
		Expect(absent(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "two-kubeconfig"}})()).
			To(BeTrue())
		Expect(clusterReady(ctx, one)()).To(HavePrefix("True "), "the cluster does not belong to the import anymore")
		Expect(h.ControlPlane.Client().Delete(ctx, one)).To(Succeed())
		Eventually(ctx, absent(ctx, one), soon).Should(BeTrue())
		Expect(secretOf(ctx, ns, "mine")()).To(HaveKey("value"))
	})

	It("is deleted with its namespace, and so are an import and an export, with what they have in other "+
		"namespaces", func(ctx SpecContext) {
		ns, store := namespace(ctx), namespace(ctx)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": reachableState("demo", kubeconfigOf(h.ControlPlane))})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.DeletionPolicy, s.Store.Namespace = v1alpha1.DeleteState, store
			s.Publish = &v1alpha1.ClusterPublication{KubeConfig: true,
				ArgoCD: &v1alpha1.ArgoCDPublication{Namespace: argocd}}
		})
		create(ctx, in)
		c := clusterOf(ns, "demo", clusterv1.KsctlClusterSpec{})
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "))
		Expect(c.Status.ServiceAccount).NotTo(BeNil())
		out := newExport(ns, toSecret("states"), identity())
		out.Spec.DeletionPolicy, out.Spec.From = v1alpha1.DeleteState, &v1alpha1.StateStore{Namespace: store}
		create(ctx, out)
		Eventually(ctx, exportReady(ctx, out), soon).Should(HavePrefix("True "))
		Expect(stored(ctx, store)).To(HaveLen(1))
		registered := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "cluster-" + ns + ".demo"}}
		Expect(absent(ctx, registered)()).To(BeFalse())

		gone := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		Expect(h.ControlPlane.Client().Delete(ctx, gone)).To(Succeed())
		Eventually(ctx, absent(ctx, gone), soon).Should(BeTrue())
		Expect(stored(ctx, store)).To(BeEmpty())
		Expect(absent(ctx, registered)()).To(BeTrue())
	})

	It("can be abandoned when its account is already deleted", func(ctx SpecContext) {
		ns := namespace(ctx)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": reachableState("demo", kubeconfigOf(h.ControlPlane))})
		create(ctx, newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.Publish = &v1alpha1.ClusterPublication{KubeConfig: true}
		}))
		c := clusterOf(ns, "demo", clusterv1.KsctlClusterSpec{})
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "))
		Expect(h.ControlPlane.Client().
			Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: harness.Deployer}})).
			To(Succeed())
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("False ServiceAccountNotFound"))
		Expect(h.ControlPlane.Client().Delete(ctx, c)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)
			ready := apimeta.FindStatusCondition(c.Status.Conditions, appsv1.ReadyCondition)
			return ready.Message, err
		}, soon).Should(And(ContainSubstring("deleting Secret "+ns+
			"/demo-kubeconfig needs the permissions of the account"),
			ContainSubstring(appsv1.AbandonAnnotation+": "+string(c.UID))))
		patch(ctx, c, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, c.UID))
		Eventually(ctx, absent(ctx, c), soon).Should(BeTrue())
		Expect(secretOf(ctx, ns, "demo-kubeconfig")()).To(HaveKey("value"), "the Secret stays")
	})

	It("refuses a malicious kubeconfig, and reports what is wrong with it", func(ctx SpecContext) {
		ns := namespace(ctx)
		for name, user := range map[string]string{
			"exec": "exec: {apiVersion: client.authentication.k8s.io/v1, " +
				"command: /bin/touch, args: [/tmp/hostile], interactiveMode: Never}",
			"file": "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
		} {
			create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
				Name: name}, StringData: map[string]string{"value": "apiVersion: v1\nkind: " +
				"Config\ncurrent-context: x\n" +
				"contexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: " +
				"'https://127.0.0.1:1'}}]\nusers: [{name: x, user: {" + user + "}}]\n"}})
			c := clusterOf(ns, name, clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: name}})
			create(ctx, c)
			want := map[string]string{"exec": `the user "x" runs a program (exec)`,
				"file": `the user "x" names a file in tokenFile`}[name]
			Eventually(ctx, clusterReady(ctx, c), soon).
				Should(And(HavePrefix("False KubeConfigRefused: Secret "+ns+"/"+name+", key value: kubeconfig: "),
					ContainSubstring(want)))
			Expect(absent(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-kubeconfig"}})()).
				To(BeTrue())
		}
	})

	It("is registered in Argo CD only in allowed namespaces, and never replaces a Secret of "+
		"another owner", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "self"},
			StringData: map[string]string{"value": kubeconfigOf(h.ControlPlane)}})
		c := clusterOf(ns, "self", clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "self"},
			ArgoCD: &clusterv1.ArgoCDCluster{Namespace: "kube-system"}})
		create(ctx, c)
		Eventually(ctx, clusterReady(ctx, c), soon).
			Should(HavePrefix("False ArgoCDNamespaceNotAllowed: spec.argocd.namespace: the controller's " +
				"--argocd-namespaces does not list kube-system"))
		patch(ctx, c, fmt.Sprintf(`{"spec":{"argocd":{"namespace":%q,"project":"web"}}}`, argocd))
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "))
		name := "cluster-" + ns + ".self"
		Expect(c.Status.ArgoCDSecret).To(Equal(argocd + "/" + name))
		Expect(secretOf(ctx, argocd, name)()).
			To(And(HaveKeyWithValue("name", ns+".self"), HaveKeyWithValue("server", h.ControlPlane.Config().Host),
				HaveKeyWithValue("project", "web"), HaveKeyWithValue("config", ContainSubstring("tlsClientConfig"))))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: name}}
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.Labels).To(HaveKeyWithValue("argocd.argoproj.io/secret-type", "cluster"))

		By("removing spec.argocd")
		patch(ctx, c, `{"spec":{"argocd":null}}`)
		Eventually(ctx, absent(ctx, secret), soon).Should(BeTrue())

		By("a Secret of that name exists")
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: name},
			StringData: map[string]string{"mine": "stays"}})
		patch(ctx, c, fmt.Sprintf(`{"spec":{"argocd":{"namespace":%q}}}`, argocd))
		Eventually(ctx, clusterReady(ctx, c), soon).
			Should(HavePrefix("False SecretConflict: Secret " + argocd + "/" + name))
		Expect(h.ControlPlane.Client().Delete(ctx, c)).To(Succeed())
		Eventually(ctx, absent(ctx, c), soon).Should(BeTrue())
		Expect(secretOf(ctx, argocd, name)()).To(HaveKeyWithValue("mine", "stays"))
		Expect(secretOf(ctx, ns, "self")()).To(HaveKey("value"), "the kubeconfig Secret of the user stays")
	})

	It("does not block workers when many clusters do not respond", suite.Safety, func(ctx SpecContext) {
		// It accepts connections, and sends nothing.
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		ns := namespace(ctx)
		own := kubeconfigOf(h.ControlPlane)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "well"},
			StringData: map[string]string{"value": own}})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "silent"}, StringData: map[string]string{
			"value": strings.ReplaceAll(own, h.ControlPlane.Config().Host, "https://"+silent.Addr().String())}})
		const many = 100
		var all []*clusterv1.KsctlCluster
		for i := range many {
			c := clusterOf(ns, fmt.Sprintf("silent-%03d", i),
				clusterv1.KsctlClusterSpec{
					Schedule:      appsv1.Schedule{Timeout: &metav1.Duration{Duration: 2 * time.Second}},
					KubeConfigRef: &clusterv1.KubeConfigRef{Name: "silent"}})
			create(ctx, c)
			all = append(all, c)
		}
		DeferCleanup(func(ctx SpecContext) { // otherwise they are probed during all other specs
			Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &clusterv1.KsctlCluster{}, client.InNamespace(ns))).
				To(Succeed())
		})
		for _, c := range all {
			Eventually(ctx, clusterReady(ctx, c), soon).
				Should(And(HavePrefix("False Unreachable: "), HaveSuffix("the request timed out")))
		}
		c := clusterOf(ns, "well", clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "well"}})
		began := time.Now()
		create(ctx, c)
		Eventually(ctx, clusterReady(ctx, c), soon).Should(HavePrefix("True "))
		AddReportEntry(fmt.Sprintf("beside %d clusters that do not respond, one is reached after", many),
			time.Since(began).String())
	})
})
