package install_test

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/charts/behaviors"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
)

// shopRelease uses what a conversion has to keep: values from a Secret, and a name.
const shopRelease = `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: shop, namespace: NAMESPACE}
spec:
  interval: 1h
  releaseName: my
  serviceAccountName: deployer
  chart: {spec: {chart: ./charts/web, sourceRef: {kind: GitRepository, name: fleet}}}
  upgrade: {crds: CreateReplace}
  values: {greeting: 'good "morning"'}
  valuesFrom: [{kind: Secret, name: shop-values, valuesKey: password, targetPath: password}]
`

const shopReleaseSecret = `apiVersion: v1
kind: Secret
metadata: {name: shop-values, namespace: NAMESPACE}
stringData: {password: hunter2}
`

// uidsOf returns the uids of the stored objects of a chart, by kind/name.
func uidsOf(ctx context.Context, ns, group string) map[string]types.UID {
	GinkgoHelper()
	out := map[string]types.UID{}
	for name, o := range storedObjects(ctx, ns, group) {
		out[name] = o.GetUID()
	}
	return out
}

var _ = Describe("Converting a HelmRelease", func() {
	It("moves the objects of its release, which keep their uids and their Pods", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + "." + behaviors.Group)
		chart := behaviors.Workload.Chart(group)
		chart["templates/password.yaml"] = "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\n" +
			"stringData:\n  password: {{ .Values.password | quote }}\n  greeting: {{ .Values.greeting | quote }}\n"
		secret := strings.ReplaceAll(shopReleaseSecret, "NAMESPACE", ns)
		Expect(plane.ApplyYAML(ctx, []byte(secret))).To(Succeed())
		Expect(installWithHelm(ctx, ns, chart, "greeting: 'good \"morning\"'\npassword: hunter2\n")).To(Succeed())
		availableRelease(ctx, ns)
		before, pods := uidsOf(ctx, ns, group), podNames(ctx, ns)
		Expect(before).To(And(HaveKey("Secret/password"), HaveKey("Deployment/web")))

		By("converting the HelmRelease")
		files := map[string]string{"clusters/prod/secret.yaml": secret,
			"clusters/prod/shop.yaml": strings.ReplaceAll(shopRelease, "NAMESPACE", ns)}
		for name, content := range chart {
			files["charts/web/"+name] = content
		}
		converted, err := harness.Convert(ctx, files, []string{"GitRepository " + ns + "/fleet"})
		Expect(err).NotTo(HaveOccurred())
		Expect(converted).To(And(HaveLen(2), HaveKey("stacks/shop/stack.yaml"),
			HaveKey("clusters/prod/shop-install.yaml")))

		By("adding the stack and the install, with the release of Helm still there")
		maps.Copy(files, converted)
		publish(ctx, ns, "src", "main@sha1:1", artifacts.Files(files))
		mark := auditMark(ctx)
		var install appsv1.KsctlInstall
		Expect(yaml.UnmarshalStrict([]byte(converted["clusters/prod/shop-install.yaml"]), &install)).To(Succeed())
		in := newInstall(ctx, ns, install.Name, func(in *appsv1.KsctlInstall) {
			source := in.Spec.SourceRef
			in.Spec = install.Spec
			in.Spec.SourceRef = source
		})
		atRevision(ctx, in, "main@sha1:1")

		Expect(uidsOf(ctx, ns, group)).To(Equal(before))
		Expect(podNames(ctx, ns)).To(ConsistOf(pods), "no Pod restarts")
		for _, r := range writes(ctx, ns, mark).Without(cluster.DryRun, cluster.Failed) {
			Expect(r.Verb).To(Equal("patch"), "no object is deleted or created: %s", r)
		}
		for name, o := range storedObjects(ctx, ns, group) {
			if before[name] != "" && name != "Secret/shop-values" {
				Expect(o.GetManagedFields()).NotTo(ContainElement(HaveField("Manager", "helm")),
					"%s belongs to the install alone", name)
			}
		}
	})
})
