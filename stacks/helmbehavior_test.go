package stacks_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/e2e/charts/behaviors"
	"github.com/ksctl/gitops/stacks"
)

// Charts of these behaviors render to the same objects as with Helm. The suite of e2e/install
// compares what the API server stores.
func TestRenderMatchesHelmBehaviors(t *testing.T) {
	for _, b := range behaviors.All() {
		t.Run(b.Name, func(t *testing.T) {
			files := map[string]string{"values.yaml": b.Values}
			for file, content := range b.Chart(behaviors.Group) {
				files["shop/"+file] = content
			}
			root := writeTree(t, files)
			want := helmTemplateYAML(t, filepath.Join(root, "shop"), "my", "prod", b.Values)
			inline := strings.ReplaceAll("\n"+strings.TrimSuffix(b.Values, "\n"), "\n", "\n        ")
			if b.Values == "" {
				inline = " {}"
			}
			for form, helm := range map[string]string{"file": "      valuesFiles: [values.yaml]\n",
				"inline": "      values:" + inline + "\n"} {
				writeFile(t, filepath.Join(root, stacks.FileName),
					components("- name: my\n    namespace: prod\n    helm:\n      chart: shop\n"+helm))
				result := mustRender(t, stacks.Request{Root: root, Stack: "demo",
					Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0",
						APIVersions: stacks.BuiltinAPIVersions()}})
				compareObjects(t, resultByName(t, result, "prod"), want)
				if got := strings.Join(result.Warnings, "\n"); b.Warnings != "" && got != b.Warnings {
					t.Errorf("%s: the warnings are %q, want %q", form, got, b.Warnings)
				}
			}
		})
	}
}
