package kustomization

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/ksctl/gitops/stacks/problem"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestBuildReadsAnFS(t *testing.T) {
	fsys := fstest.MapFS{
		"apps/prod/kustomization.yaml": file("namespace: prod\nnamePrefix: a-\nresources: [../base]\n"),
		"apps/base/kustomization.yaml": file("resources: [web.yaml]\n"),
		"apps/base/web.yaml": file("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n" +
			"data: {a: 'yes', b: \"1e3\"}\n"),
	}
	objects, err := Build(t.Context(), fsys, "apps/prod")
	if err != nil || len(objects) != 1 {
		t.Fatal(objects, err)
	}
	meta := objects[0]["metadata"].(map[string]any)
	data := objects[0]["data"].(map[string]any)
	if meta["name"] != "a-web" || meta["namespace"] != "prod" || data["a"] != "yes" || data["b"] != "1e3" {
		t.Errorf("got %v", objects[0])
	}
}

func TestBuildErrorsNameTheFile(t *testing.T) {
	for name, text := range map[string]string{
		"remote base":  "resources: [https://example.com/base]\n",
		"missing file": "resources: [none.yaml]\n",
		"chart":        "helmCharts: [{name: web, releaseName: web}]\n",
		"not YAML":     "resources: [\n",
		"leaves":       "resources: [../../x.yaml]\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Build(t.Context(), fstest.MapFS{"k/kustomization.yaml": file(text)}, "k")
			found, ok := errors.AsType[*problem.Error](err)
			if !ok || found.File == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}
