package stacks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// Each component depends on both components of the layer below, so that there are 2^40 paths
// through the dependencies. The check must not follow them all.
func TestNamespaceCheckVisitsDependenciesOnce(t *testing.T) {
	const layers = 40
	files := map[string]string{"top.yaml": strings.Replace(configMap, "name: a", "name: top", 1),
		"aside.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: site}\n"}
	lines := []string{"- {name: aside, manifests: [aside.yaml]}"}
	needs := ""
	for i := range layers {
		for _, side := range []string{"l", "r"} {
			name := fmt.Sprintf("%s%d", side, i)
			files[name+".yaml"] = strings.Replace(configMap, "name: a", "name: "+name, 1)
			lines = append(lines, fmt.Sprintf("- {name: %s, %smanifests: [%s.yaml]}", name, needs, name))
		}
		needs = fmt.Sprintf("dependsOn: [l%d, r%d], ", i, i)
	}
	render := func(top string) error {
		files["stack.yaml"] = components(append(lines, "- {name: top, "+top+
			"namespace: site, createNamespace: true, manifests: [top.yaml]}")...)
		_, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo"})
		return err
	}
	if err := render(needs); err == nil ||
		!strings.Contains(err.Error(), `rendered by component "aside"; add that component to dependsOn`) {
		t.Error(err)
	}
	lines[1] = "- {name: l0, dependsOn: [aside], manifests: [l0.yaml]}"
	if err := render(needs); err != nil {
		t.Errorf("a transitive dependency was not found: %v", err)
	}
}
