package manifests

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/kustomization"
)

func TestRemove(t *testing.T) {
	third := strings.ReplaceAll(otherYAML, "other", "third")
	for name, test := range map[string]struct{ files, want files }{
		"only document": {files{"apps/web.yaml": "# comment\n---\n" + webYAML, "apps/other.yaml": otherYAML},
			files{"apps/web.yaml": ""}},
		"last file": {files{"apps/sub/web.yaml": webYAML, "other/other.yaml": otherYAML},
			files{"apps/sub/web.yaml": placeholder}},
		"last file of JSON": {files{"apps/web.json": `{"apiVersion": "apps/v1", "kind": "Deployment", ` +
			`"metadata": {"name": "web", "namespace": "shop"}}`}, files{"apps/web.json": "", "apps/web.yaml": placeholder}},
		"last file beside a kustomization": {files{"apps/web.yaml": webYAML,
			"apps/sub/kustomization.yaml": "resources: [a.yaml]\n", "apps/sub/a.yaml": otherYAML},
			files{"apps/web.yaml": ""}},
		"first": {files{"apps/web.yaml": webYAML + "---\n" + otherYAML}, files{"apps/web.yaml": otherYAML}},
		"first with a comment after": {files{"apps/web.yaml": webYAML + "--- # other\n" + otherYAML},
			files{"apps/web.yaml": "--- # other\n" + otherYAML}},
		"last": {files{"apps/web.yaml": otherYAML + "---\n" + webYAML}, files{"apps/web.yaml": otherYAML}},
		"middle": {files{"apps/web.yaml": "# all\n---\n" + otherYAML + "---\n# web\n" + webYAML + "---\n" + third},
			files{"apps/web.yaml": "# all\n---\n" + otherYAML + "---\n" + third}},
		"kustomization": {files{"apps/kustomization.yaml": "resources:\n# the web\n- ./web.yaml\n# the other\n" +
			"- other.yaml\n",
			"apps/other.yaml": otherYAML, "apps/web.yaml": webYAML},
			files{"apps/kustomization.yaml": "resources:\n# the other\n- other.yaml\n", "apps/web.yaml": ""}},
		"last resource": {files{"apps/kustomization.yaml": "namespace: shop\nresources:\n- web.yaml\n",
			"apps/web.yaml": webYAML},
			files{"apps/kustomization.yaml": "namespace: shop\nresources: []\n", "apps/web.yaml": ""}},
		"the only field": {files{"apps/kustomization.yaml": "resources:\n- web.yaml\n", "apps/web.yaml": webYAML},
			files{"apps/kustomization.yaml": "resources: []\n", "apps/web.yaml": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Remove(t.Context(), test.files.fs(), "apps", webKey)
			if err != nil {
				t.Fatal(err)
			}
			expectFiles(t, got, test.want)
		})
	}
}

func TestCanceledBuildIsNoConflict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := files{"kustomization.yaml": "resources: [web.yaml]\nnamePrefix: a-\n", "web.yaml": webYAML}
	_, find := Find(ctx, f.fs(), ".", webKey)
	_, _, set := Set(ctx, f.fs(), ".", webKey, object(webKey))
	_, remove := Remove(ctx, f.fs(), ".", webKey)
	for _, err := range []error{find, set, remove} {
		if _, isConflict := errors.AsType[*ConflictError](err); isConflict || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

// The placeholder is a file that kustomize accepts, and that the next object replaces.
func TestPlaceholderKeepsFolder(t *testing.T) {
	empty := files{"apps/shop-web.yaml": placeholder}
	if objects, err := kustomization.Build(t.Context(), files{"kustomization.yaml": "resources: [a.yaml]\n",
		"a.yaml": placeholder}.fs(), "."); err != nil || len(objects) > 0 {
		t.Errorf("%v, %v", objects, err)
	}
	got, doc, err := Set(t.Context(), empty.fs(), "apps", webKey, object(webKey))
	if err != nil || doc.File != "apps/shop-web.yaml" || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	empty["apps/shop-web.yaml"] = "# somebody wrote this\n"
	_, doc, err = Set(t.Context(), empty.fs(), "apps", webKey, object(webKey))
	if err != nil || doc.File == "apps/shop-web.yaml" {
		t.Errorf("%v, %v", doc, err)
	}
}

// A patch that needs the object would break the kustomization.
func TestRemoveRefusesToBreakTheKustomization(t *testing.T) {
	_, err := Remove(t.Context(), files{"kustomization.yaml": "resources: [web.yaml]\npatches:\n- patch: |-\n" +
		"    apiVersion: apps/v1\n" +
		"    kind: Deployment\n    metadata: {name: web, namespace: shop, labels: {a: b}}\n",
		"web.yaml": webYAML}.fs(), ".", webKey)
	if e := mustConflict(t, err); e.File != "kustomization.yaml" || !strings.Contains(e.Reason, "cannot be built") {
		t.Errorf("got %v", e)
	}
}
