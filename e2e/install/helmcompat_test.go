package install_test

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/e2e/charts/behaviors"
	"github.com/ksctl/gitops/e2e/charts/stored"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/generated"
)

// releaseStack is a stack with the same chart, release name and values as installWithHelm.
const releaseStack = "spec:\n  version: 1.0.0\n  components:\n" +
	"  - {name: my, helm: {chart: ./chart, releaseName: my, valuesFiles: [values.yaml]}}\n"

// managedByLabel and helmNamespaceAnnotation are set by helm install, beside
// live.HelmReleaseNameAnnotation.
const (
	managedByLabel          = "app.kubernetes.io/managed-by"
	helmNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// installWithHelm installs a chart as release "my" with helm install. It returns Helm's error.
func installWithHelm(ctx context.Context, ns string, chart map[string]string, values string,
	args ...string) error {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	Expect(harness.WriteFiles(dir, releaseFiles(chart, values))).To(Succeed())
	_, err := h.Helm(ctx, ns, append([]string{"install", "my", filepath.Join(dir, "chart"), "--values",
		filepath.Join(dir, "values.yaml")}, args...)...)
	return err
}

// releaseFiles returns the files of releaseStack.
func releaseFiles(chart map[string]string, values string) map[string]string {
	files := map[string]string{"values.yaml": values}
	for name, content := range chart {
		files["chart/"+name] = content
	}
	return files
}

// chartKinds are the kinds of objects in the charts of package behaviors. Pods are left out: their
// names are random.
func chartKinds(group string) []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "batch", Version: "v1", Kind: "Job"}, {Group: group, Version: "v1", Kind: "Widget"},
		crdKind.GroupKind().WithVersion("v1"),
	}
}

// storedObjects returns the objects of a chart that the API server stores, by kind/name.
func storedObjects(ctx context.Context, ns, group string) map[string]*unstructured.Unstructured {
	GinkgoHelper()
	out := map[string]*unstructured.Unstructured{}
	for _, kind := range chartKinds(group) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		options := []client.ListOption{client.InNamespace(ns)}
		if kind.Kind == crdKind.Kind {
			options = nil
		}
		if err := plane.Client().List(ctx, list, options...); !apimeta.IsNoMatchError(err) {
			Expect(err).NotTo(HaveOccurred())
		}
		for i := range list.Items {
			if u := &list.Items[i]; !isOfNamespace(u, group) {
				out[u.GetKind()+"/"+u.GetName()] = u
			}
		}
	}
	return out
}

// isOfNamespace reports whether an object is part of each new namespace, a record of Helm, or a
// definition of another group.
func isOfNamespace(u *unstructured.Unstructured, group string) bool {
	kind, _, _ := unstructured.NestedString(u.Object, "type")
	if u.GetKind() == crdKind.Kind {
		return !strings.HasSuffix(u.GetName(), "."+group)
	}
	return kind == "helm.sh/release.v1" || kind == generated.SecretType || u.GetName() == "kube-root-ca.crt" ||
		u.GetKind() == "ServiceAccount" && (u.GetName() == "default" || u.GetName() == "deployer")
}

// storedContent returns the YAML of objects by kind/name, without what differs between two objects
// with the same content.
func storedContent(objects map[string]*unstructured.Unstructured, ns string) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for name, u := range objects {
		text, err := yaml.Marshal(stored.Content(u.Object, ns))
		Expect(err).NotTo(HaveOccurred())
		out[strings.ReplaceAll(name, ns, stored.Namespace)] = string(text)
	}
	return out
}

// compareWithHelm installs a chart with Helm and with us, and compares what the API server stores.
func compareWithHelm(ctx context.Context, b behaviors.Behavior) {
	GinkgoHelper()
	theirs, ours := namespaceFor(ctx), namespaceFor(ctx)
	group, ourGroup := deleteDefinition(theirs+"."+behaviors.Group), deleteDefinition(ours+"."+behaviors.Group)
	refusal := installWithHelm(ctx, theirs, b.Chart(group), b.Values)
	if b.InstallError == "" {
		Expect(refusal).NotTo(HaveOccurred())
	}

	publish(ctx, ours, "src", "main@sha1:1", tree(releaseStack, releaseFiles(b.Chart(ourGroup), b.Values)))
	atRevision(ctx, newInstall(ctx, ours, "i", hourly), "main@sha1:1")
	if b.InstallError != "" {
		Expect(refusal).To(MatchError(ContainSubstring(b.InstallError)), "helm install refuses the chart")
		Expect(storedObjects(ctx, ours, ourGroup)).NotTo(BeEmpty(), "we install what helm template renders")
		return
	}
	want := storedContent(storedObjects(ctx, theirs, group), theirs)
	Expect(want).NotTo(BeEmpty(), "Helm installs objects")
	Eventually(ctx, func() map[string]string {
		return storedContent(storedObjects(ctx, ours, ourGroup), ours)
	}, soon).Should(Equal(want), "hooks are deleted after the install is ready")
}

var _ = Describe("A chart is stored as Helm stores it", func() {
	for _, b := range behaviors.All() {
		It(b.Name, func(ctx SpecContext) { compareWithHelm(ctx, b) })
	}
})
