package targets_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("docs/clusters.md", func() {
	It("has sufficient permissions to use a cluster", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod-eu-kubeconfig"},
			StringData: map[string]string{"value": kubeconfig(remote)}})
		create(ctx, &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod-eu"},
			Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "prod-eu-kubeconfig"},
				ServiceAccountName: harness.Deployer}})
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "limited"}})
		blocks, err := harness.CodeBlocks("docs/clusters.md", "Installing to a cluster", "yaml")
		Expect(err).NotTo(HaveOccurred())
		rights := blocks[len(blocks)-1]
		Expect(rights).To(ContainSubstring("name: deployer"))
		Expect(h.ControlPlane.ApplyYAML(ctx,
			[]byte(strings.NewReplacer("namespace: team", "namespace: "+here, "name: deployer", "name: limited").
				Replace(rights)))).To(Succeed())

		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		in := install(here, "app", there)
		// The field is that of the page. Permissions take effect with a delay.
		Expect(yaml.UnmarshalStrict([]byte(blocks[0]), in)).To(Succeed())
		Expect(in.Spec.ClusterRef.Name).To(Equal("prod-eu"))
		in.Spec.ServiceAccountName, in.Spec.RetryInterval = "limited", &metav1.Duration{Duration: time.Second}
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Expect(configMapValues(ctx, remote.Client(), there)()).To(Equal(map[string]string{"a": "one"}))
	})

	It("has a valid manifest, whose expressions set the values for a labeled cluster", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		blocks, err := harness.CodeBlocks("docs/clusters.md", "Installing to many clusters", "yaml")
		Expect(err).NotTo(HaveOccurred())
		sample := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(blocks[0], "namespace: team", "namespace: "+here)),
			&sample.Object)).To(Succeed())
		strict := client.WithFieldValidation(h.ControlPlane.Client(), metav1.FieldValidationStrict)
		Expect(strict.Create(ctx, sample, client.DryRunAll)).To(Succeed())

		var page appsv1.KsctlInstall
		Expect(yaml.UnmarshalStrict([]byte(blocks[0]), &page)).To(Succeed())
		values := page.Spec.ValuesFrom[0]
		values.Component = "main"
		// The chart has the values name and zone instead of those of the page.
		for i, path := range []string{"zone", "name"} {
			values.Set[i].Path = path
		}
		publishChart(ctx, here, "main@sha1:1", "one", "")
		createClusters(ctx, here, "eu-1", "us-1")
		patch(ctx, h.ControlPlane.Client(),
			&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "eu-1"}},
			`{"metadata":{"labels":{"cluster.ksctl.com/cloud":"aws","cluster.ksctl.com/region":"eu-west-1"}}}`)
		in := harness.NewInstall(here, "app")
		in.Spec.TargetNamespace, in.Spec.ClusterSelector, in.Spec.ValuesFrom = there, page.Spec.ClusterSelector,
			[]appsv1.ValuesReference{values}
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: Applied revision main@sha1:1: 1 of 1 clusters are ready"))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-prometheus.eu-1.example.com": "one-eu-west-1"}))

		By("selecting a cluster without such a label")
		patch(ctx, h.ControlPlane.Client(),
			&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "us-1"}},
			`{"metadata":{"labels":{"cluster.ksctl.com/cloud":"aws"}}}`)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(And(HavePrefix("False ClustersFailed: 1 of 2 clusters are ready; 1 failed: us-1: "),
				ContainSubstring("zone: ")))
		Eventually(ctx,
			readySummary(ctx, &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "app-us-1"}}),
			soon).Should(HavePrefix(`False InvalidClusterValues: valuesFrom Cluster for component "main": zone: `))
	})
})
