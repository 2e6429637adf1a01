package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/internal/release/chart"
)

// newField is a field of KsctlSource that the chart of packageOldChart lacks.
const newField = "commitStatus"

// packageOldChart packages a chart of an earlier release: one CRD lacks a field. The controller is
// the same.
func packageOldChart(repository, digest string) string {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), "chart")
	Expect(os.CopyFS(dir, os.DirFS("../../config/chart"))).To(Succeed())
	file := filepath.Join(dir, "files", "crds", "apps.ksctl.com_ksctlsources.yaml")
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	var crd map[string]any
	Expect(yaml.Unmarshal(content, &crd)).To(Succeed())
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	Expect(err).NotTo(HaveOccurred())
	first, ok := versions[0].(map[string]any)
	Expect(ok).To(BeTrue())
	at := []string{"schema", "openAPIV3Schema", "properties", "spec"}
	spec, found, err := unstructured.NestedMap(first, at...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue())
	Expect(spec["properties"]).To(HaveKey(newField))
	unstructured.RemoveNestedField(spec, "properties", newField)
	rules, _, err := unstructured.NestedSlice(spec, "x-kubernetes-validations")
	Expect(err).NotTo(HaveOccurred())
	spec["x-kubernetes-validations"] = slices.DeleteFunc(rules, func(rule any) bool {
		text, _, _ := unstructured.NestedString(rule.(map[string]any), "rule")
		return strings.Contains(text, newField)
	})
	Expect(unstructured.SetNestedMap(first, spec, at...)).To(Succeed())
	Expect(unstructured.SetNestedSlice(crd, versions, "spec", "versions")).To(Succeed())
	content, err = yaml.Marshal(crd)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	packaged, err := chart.Package(chart.Options{Dir: dir, Out: GinkgoT().TempDir(), Version: "0.0.9",
		Repository: repository, Digest: digest, Created: time.Unix(0, 0)})
	Expect(err).NotTo(HaveOccurred())
	return packaged
}

// crdFields returns the spec fields of KsctlSource in the CRD on the API server.
func crdFields(ctx SpecContext) map[string]apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ksctlsources.apps.ksctl.com"}}
	Expect(get(ctx, crd)).To(Succeed())
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
}
