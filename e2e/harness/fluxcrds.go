package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/e2e/tools"
)

// FluxCRDPaths returns files and folders with Flux' CRDs; some are written to dir. The source CRDs
// have the version of our Go types. The source-controller that package tools builds is older and
// reads OCIRepository and Bucket as v1beta2, so these two CRDs also serve v1beta2, with the same
// schema.
func FluxCRDPaths(ctx context.Context, dir string) ([]string, error) {
	sources, err := filepath.Glob(RepoPath("e2e/install/testdata/crds/*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if data, err = addV1Beta2(data); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600); err != nil {
			return nil, err
		}
	}
	source, err := tools.ModuleDir(ctx, tools.SourceController)
	if err != nil {
		return nil, err
	}
	kustomize, err := tools.ModuleDir(ctx, tools.KustomizeController)
	if err != nil {
		return nil, err
	}
	// The source-controller does not start without the CRDs of Helm charts and repositories.
	helm, err := filepath.Glob(filepath.Join(source, "config", "crd", "bases", "*_helm*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 || len(helm) != 2 {
		return nil, fmt.Errorf("incomplete Flux CRDs: found %d source CRDs and %d of 2 Helm CRDs", len(sources),
			len(helm))
	}
	return append(helm, dir, filepath.Join(kustomize, "config", "crd", "bases")), nil
}

func addV1Beta2(data []byte) ([]byte, error) {
	var definition map[string]any
	if err := yaml.Unmarshal(data, &definition); err != nil {
		return nil, err
	}
	kind, _, err := unstructured.NestedString(definition, "spec", "names", "kind")
	if err != nil || !slices.Contains([]string{"OCIRepository", "Bucket"}, kind) {
		return data, err
	}
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("CRD of %s has %d versions, expected 1: %w", kind, len(versions), err)
	}
	older, ok := runtime.DeepCopyJSONValue(versions[0]).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("CRD of %s: spec.versions[0] is not an object", kind)
	}
	older["name"], older["storage"] = "v1beta2", false
	if err := unstructured.SetNestedSlice(definition, append(versions, older), "spec", "versions"); err != nil {
		return nil, err
	}
	return yaml.Marshal(definition)
}
