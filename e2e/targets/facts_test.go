package targets_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsapi "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// zoned is a stack with a Deployment in each of the three forms, which has a label of the cluster.
func zoned() (stack string, files map[string]string) {
	stack = "spec:\n  version: 1.0.0\n  components:\n"
	files = map[string]string{"k/kustomization.yaml": "resources: [k.yaml]\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n"}
	for name, source := range map[string][2]string{"manifests": {"manifests: [m.yaml]", "m.yaml"},
		"kustomize": {"kustomize: {path: k}", "k/k.yaml"},
		"helm":      {"helm: {chart: ./chart}", "chart/templates/h.yaml"}} {
		stack += "  - name: " + name + "\n    " + source[0] + "\n    fields:\n    - {target: {kind: Deployment}, " +
			"path: spec.template.metadata.annotations.zone, value: \"cluster.name + '-' + cluster.labels.zone\"}\n"
		files[source[1]] = strings.ReplaceAll("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME}\nspec:\n"+
			"  replicas: 0\n  selector: {matchLabels: {app: NAME}}\n  template:\n"+
			"    metadata: {labels: {app: NAME}, annotations: {zone: none}}\n"+
			"    spec: {containers: [{name: app, image: example.com/app}]}\n", "NAME", name)
	}
	return stack, files
}

var _ = Describe("Facts of a cluster", func() {
	It("reach Deployments of every form of a member install, and only those that the stack reads wake it",
		func(ctx SpecContext) {
			here, there := createNamespaces(ctx)
			createClusters(ctx, here, "a")
			Expect(h.PublishSource(ctx, here, "src", "r1", harness.SourceTree(zoned()))).To(Succeed())
			in := harness.NewInstall(here, "app")
			in.Spec.TargetNamespace = there
			in.Spec.ClusterSelector = &appsv1.ClusterSelector{}
			create(ctx, in)
			zones := func(ctx context.Context) (out []string, err error) {
				for _, name := range []string{"manifests", "kustomize", "helm"} {
					d := &appsapi.Deployment{}
					if err := remote.Client().Get(ctx, client.ObjectKey{Namespace: there, Name: name}, d); err != nil {
						return nil, err
					}
					out = append(out, d.Spec.Template.Annotations["zone"])
				}
				return out, nil
			}
			Eventually(ctx, zones, soon).Should(HaveEach("a-zone-a"))

			set := func(labels string) {
				GinkgoHelper()
				patch(ctx, h.ControlPlane.Client(),
					&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "a"}},
					`{"metadata":{"labels":`+labels+`}}`)
			}
			By("changing the label")
			set(`{"zone":"other"}`)
			Eventually(ctx, zones, soon).Should(HaveEach("a-other"))

			By("changing another label")
			mark, err := remote.AuditMark(ctx)
			Expect(err).NotTo(HaveOccurred())
			set(`{"color":"red"}`)
			Consistently(ctx, func() (cluster.Requests, error) {
				all, err := remote.AuditSince(ctx, mark)
				return all.Where(cluster.InNamespace(there)).
					Without(cluster.ByUserAgent("kube-controller-manager")), err
			}, time.Second, 200*time.Millisecond).Should(BeEmpty(), "the stack does not read it")
		})

	It("are those of the clusterRef of a KsctlRemove, which finds the objects that they change", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a")
		stack := "spec:\n  version: 1.0.0\n" +
			"  parameters: {schema: {required: [word], properties: {word: {type: string}}}}\n" +
			"  components:\n  - name: main\n    manifests: [main]\n    fields:\n" +
			"    - {target: {kind: ConfigMap}, path: data.word, value: \"cluster.labels.zone + '-' + stack.word\"}\n"
		Expect(h.PublishSource(ctx, here, "src", "r1",
			harness.SourceTree(stack, map[string]string{"main/a.yaml": configMap("a", "none")}))).To(Succeed())
		Expect(remote.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "a"},
			Data: map[string]string{"word": "zone-a-one"}})).To(Succeed())
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "rm"},
			Spec: appsv1.KsctlRemoveSpec{SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks",
				Stack: "app", TargetNamespace: there, ServiceAccountName: harness.Deployer,
				TargetCluster: appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "a"}}}}
		create(ctx, rm)
		Eventually(ctx, readySummary(ctx, rm), soon).
			Should(ContainSubstring("set in spec.parameters what the install had from parametersFrom"))

		By("setting the parameter")
		patch(ctx, h.ControlPlane.Client(), rm, `{"spec":{"parameters":{"word":"one"}}}`)
		Eventually(ctx, readySummary(ctx, rm), soon).Should(ContainSubstring("1 objects would be removed"))
	})
})
