package flux_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/e2e/tools"
)

// definitions are files with those of Flux. Sources are of the version whose types we
// have; the source-controller that can be built here is older and reads two of them as
// v1beta2, so that these are served as that as well, with the same schema.
func definitions(ctx context.Context) []string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	sources, err := filepath.Glob("../install/testdata/crds/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(sources).NotTo(BeEmpty())
	for _, path := range sources {
		data, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		var definition map[string]any
		Expect(yaml.Unmarshal(data, &definition)).To(Succeed())
		alsoV1Beta2(definition)
		data, err = yaml.Marshal(definition)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600)).To(Succeed())
	}
	bases := func(tool string) string {
		module, err := tools.ModuleDir(ctx, tool)
		Expect(err).NotTo(HaveOccurred())
		return filepath.Join(module, "config", "crd", "bases")
	}
	// It does not start without those of charts.
	helm, err := filepath.Glob(filepath.Join(bases(tools.SourceController), "*_helm*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(helm).To(HaveLen(2))
	return append(helm, dir, bases(tools.KustomizeController))
}

func alsoV1Beta2(definition map[string]any) {
	GinkgoHelper()
	kind, _, err := unstructured.NestedString(definition, "spec", "names", "kind")
	Expect(err).NotTo(HaveOccurred())
	if !slices.Contains([]string{"OCIRepository", "Bucket"}, kind) {
		return
	}
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	Expect(err).NotTo(HaveOccurred())
	Expect(versions).To(HaveLen(1))
	older, ok := runtime.DeepCopyJSONValue(versions[0]).(map[string]any)
	Expect(ok).To(BeTrue())
	older["name"], older["storage"] = "v1beta2", false
	Expect(unstructured.SetNestedSlice(definition, append(versions, older), "spec", "versions")).To(Succeed())
}
