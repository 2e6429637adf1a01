package systems_test

import (
	"context"
	"encoding/base64"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// chart is the chart of the example, and tenant the namespace of its tenant.
const (
	chart   = "opentelemetry-collector"
	release = chart + "-blue"
	tenant  = "tenant-acme"
)

// serviceMonitors is a part of the CustomResourceDefinition of the Prometheus operator.
const serviceMonitors = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: servicemonitors, singular: servicemonitor, kind: ServiceMonitor, listKind: ServiceMonitorList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// pushChart pushes a version of the chart.
func pushChart(ctx context.Context, version string) {
	GinkgoHelper()
	files := map[string]string{}
	for _, file := range []string{"Chart.yaml", "values.yaml", "templates/all.yaml"} {
		content, err := os.ReadFile("testdata/collector/" + file)
		Expect(err).NotTo(HaveOccurred())
		files[chart+"/"+file] = strings.ReplaceAll(string(content), "version: 0.140.0", "version: "+version)
	}
	data, err := artifacts.Archive(artifacts.Files(files))
	Expect(err).NotTo(HaveOccurred())
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.helm.config.v1+json"),
		mutate.Addendum{Layer: static.NewLayer(data, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")})
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(images.Host() + "/charts/" + chart + ":" + version)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, image, remote.WithContext(ctx))).To(Succeed())
}

// publishCollectors publishes the stack of the catalog with the registry of the suite in place of
// the repository on the Internet.
func publishCollectors(ctx context.Context) {
	GinkgoHelper()
	content, err := os.ReadFile(harness.RepoPath("stacks/catalog/stacks/collector/1.0.0/stack.yaml"))
	Expect(err).NotTo(HaveOccurred())
	const repository = "https://open-telemetry.github.io/opentelemetry-helm-charts"
	Expect(string(content)).To(ContainSubstring(repository))
	charts := images.URL("charts")
	stack := strings.NewReplacer(repository, charts, "\n    install:\n",
		"\n    install:\n      charts: [{repository: \""+charts+"\", insecure: true}]\n      retryInterval: 2s\n").
		Replace(string(content))
	platform := framework.Namespace(ctx, h, "platform")
	Expect(h.PublishSource(ctx, platform, "fleet", "main@sha1:1",
		artifacts.Files(map[string]string{"stacks/collector/stack.yaml": stack}))).To(Succeed())
	publish(ctx, "collector", example("collector.md", "Publish it", "platform/collector.yaml", "{kind: Catalog}",
		"{kind: KsctlSource, namespace: "+platform+", name: fleet}\n  path: ./stacks"), "collectors")
}

// configure sets the configuration of an object: values of the chart.
func configure(values string) string {
	return `{"spec": {"collector": {"configuration": "` + base64.StdEncoding.EncodeToString([]byte(values)) + `"}}}`
}

var _ = Describe("Collector", func() {
	It("installs the chart of each object for its tenant, and keeps the configuration secret", func(ctx SpecContext) {
		values := example("collector.md", "Create an object", "values.yaml")
		const token = "5vXcKp2mQe7RtYwZ"
		Expect(values).To(ContainSubstring(scanner.AddSecret(token)))
		pushChart(ctx, "0.140.0")
		apply(ctx, serviceMonitors)
		account := example("collector.md", "Publish it", "collectors/account.yaml")
		apply(ctx, account)
		publishCollectors(ctx)

		By("creating the object of the example")
		manifest := example("collector.md", "Create an object", "collectors/acme.yaml")
		var written struct {
			Spec struct {
				Collector struct {
					Configuration []byte `json:"configuration"`
				} `json:"collector"`
			} `json:"spec"`
		}
		Expect(yaml.Unmarshal([]byte(manifest), &written)).To(Succeed())
		Expect(values).To(HaveSuffix(string(written.Spec.Collector.Configuration)), "the page shows the configuration")
		apply(ctx, manifest)
		o := object(schema.GroupVersionKind{Group: "example.com", Version: "v1alpha1", Kind: "Collector"}, "collectors",
			"acme-blue")
		becomes(ctx, o, "Available", "True ")
		Expect(readyPods(ctx, tenant, "app", release)).To(Equal(1))
		secret := &corev1.Secret{ObjectMeta: meta(tenant, release)}
		Expect(get(ctx, secret)).To(Succeed())
		Expect(string(secret.Data["config.yaml"])).To(ContainSubstring(token))
		Expect(secret.Annotations).To(And(HaveKeyWithValue("example.com/tenant-id", "4711"),
			HaveKeyWithValue("example.com/cluster", "prod")))
		monitor := object(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1",
			Kind: "ServiceMonitor"}, tenant, release)
		Expect(get(ctx, monitor)).To(Succeed())
		out, err := h.Shell(ctx, GinkgoT().TempDir(), "kubectl -n collectors get col")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`acme-blue +\S+ +opentelemetry-collector +0.140.0 +Tenant-Acme +True`))

		By("deleting parts by hand, and restarting the controller")
		comesBack(ctx, &corev1.Service{ObjectMeta: meta(tenant, release)})
		restart()
		comesBack(ctx, secret)
		Expect(string(secret.Data["config.yaml"])).To(ContainSubstring(token))
		comesBack(ctx, monitor)

		By("choosing a version that is pushed later")
		change(ctx, o, `{"spec": {"collector": {"version": "0.141.0"}}}`)
		becomes(ctx, o, "Available", "False ChartNotFound: ")
		pushChart(ctx, "0.141.0")
		By("requesting a reconcile without the permissions for it, and granting them")
		rbac := rbacv1.SchemeGroupVersion
		remove(ctx, object(rbac.WithKind("ClusterRoleBinding"), "", "collector-edit"))
		change(ctx, o, `{"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "1"}}}`)
		becomes(ctx, o, "Available", "False ReconciliationFailed: ")
		apply(ctx, account)
		becomes(ctx, o, "Available", "True ")
		d := &appsv1.Deployment{ObjectMeta: meta(tenant, release)}
		Expect(get(ctx, d)).To(Succeed())
		Expect(d.Labels).To(HaveKeyWithValue("version", "0.141.0"))

		By("writing what is no base64, and no YAML")
		for _, invalid := range []string{`{"spec": {"collector": {"configuration": "%` + token + `"}}}`,
			configure("a: [" + token), configure(token)} {
			change(ctx, o, invalid)
			becomes(ctx, o, "Stalled", "True ")
			becomes(ctx, o, "Available", "False ")
			Expect(condition(o, "Available")).To(ContainSubstring("spec.collector.configuration"))
			Expect(status(o)).NotTo(ContainSubstring(token))
			Expect(get(ctx, d)).To(Succeed(), "what runs stays")
		}
		change(ctx, o, configure(values+"# again\n"))
		becomes(ctx, o, "Available", "True ")
		Expect(status(o)).NotTo(ContainSubstring(token))
		inventories, err := h.Shell(ctx, GinkgoT().TempDir(), "kubectl get ksctlinventories,events -A -o yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(inventories).NotTo(ContainSubstring(token))

		By("deleting it")
		remove(ctx, o)
		gone(ctx, o)
		gone(ctx, d)
		gone(ctx, monitor)
		gone(ctx, secret)
		gone(ctx, &corev1.Namespace{ObjectMeta: meta("", tenant)})
	}, SpecTimeout(30*time.Minute))
})
