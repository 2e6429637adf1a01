package manifests

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSetCreatesAFile(t *testing.T) {
	for name, test := range map[string]struct{ files, want files }{
		"no folder": {files{}, files{"apps/shop-web.yaml": newWeb}},
		"taken":     {files{"apps/shop-web.yaml": otherYAML}, files{"apps/shop-web-deployment.yaml": newWeb}},
		"kustomization": {files{"apps/kustomization.yaml": "namespace: shop # all\nresources: # of the shop\n" +
			"  - other.yaml # first\n\n" +
			"# labels\nlabels:\n  - pairs: {a: b}\n", "apps/other.yaml": otherYAML},
			files{"apps/shop-web.yaml": newWeb, "apps/kustomization.yaml": "namespace: shop # all\n" +
				"resources: # of the shop\n" +
				"  - other.yaml # first\n  - shop-web.yaml\n\n# labels\nlabels:\n  - pairs: {a: b}\n"}},
		"kustomization without resources": {files{"apps/Kustomization": "kind: Kustomization\n" +
			"apiVersion: kustomize.config.k8s.io/v1beta1\n"},
			files{"apps/shop-web.yaml": newWeb, "apps/Kustomization": "kind: Kustomization\n" +
				"apiVersion: kustomize.config.k8s.io/v1beta1\nresources:\n- shop-web.yaml\n"}},
		"resources in brackets": {files{"apps/kustomization.yaml": "resources: [other.yaml]\n",
			"apps/other.yaml": otherYAML},
			files{"apps/shop-web.yaml": newWeb, "apps/kustomization.yaml": "resources: [other.yaml, shop-web.yaml]\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, doc, err := Set(t.Context(), test.files.fs(), "apps", webKey, object(webKey))
			if err != nil {
				t.Fatal(err)
			}
			expectFiles(t, got, test.want)
			found, err := Find(t.Context(), overlay{test.files.fs(), got}, "apps", webKey)
			if err != nil || found.Hash != doc.Hash || found.File != doc.File {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}
}

func TestSetNumbersFilesOfTheSameName(t *testing.T) {
	repo := files{}
	for i, key := range []Key{{"", "ConfigMap", "a", "b-c-d"}, {"", "ConfigMap", "a-b", "c-d"},
		{"", "ConfigMap", "a-b-c", "d"}, {"", "Secret", "a-b-c", "d"}} {
		got, doc, err := Set(t.Context(), repo.fs(), ".", key, object(key))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"a-b-c-d.yaml", "a-b-c-d-configmap.yaml", "a-b-c-d-configmap-2.yaml", "a-b-c-d-secret.yaml"}[i]
		if doc.File != want {
			t.Errorf("%s, want %s", doc.File, want)
		}
		for name, content := range got {
			repo[name] = string(content)
		}
	}
}

func TestSetRefusesNewObjectsThatAKustomizationChanges(t *testing.T) {
	for text, reason := range map[string]string{
		"namespace: other\n":                    "sets the namespace other",
		"namePrefix: a-\nresources: [o.yaml]\n": "renames",
		"nameSuffix: -a\nresources: [o.yaml]\n": "renames",
		"resources: &x [o.yaml]\n":              "anchor",
		"patches: [{target: {kind: Deployment}, patch: '- {op: add, path: /spec/x, value: 1}'}]\n" +
			"resources: [o.yaml]\n": "spec.x",
	} {
		_, _, err := Set(t.Context(), files{"k/kustomization.yaml": text, "k/o.yaml": otherYAML}.fs(), "k", webKey,
			object(webKey))
		if e := mustConflict(t, err); !strings.Contains(e.Reason,
			reason) || e.NotFound || e.File != "k/kustomization.yaml" {
			t.Errorf("%s: got %v", text, e)
		}
	}
}

// An overlay that sets a field to what the document has would undo a change of that field only.
func TestSetRefusesLocalConfiguration(t *testing.T) {
	desired := object(webKey)
	for name, f := range map[string]files{"new": {}, "changed": {"apps/web.yaml": webYAML}} {
		desired.SetAnnotations(map[string]string{"config.kubernetes.io/local-config": "true"})
		_, _, err := Set(t.Context(), f.fs(), "apps", webKey, desired)
		if e := mustConflict(t, err); !strings.Contains(e.Reason, "remove annotations") {
			t.Errorf("%s: %v", name, e)
		}
		desired.SetAnnotations(map[string]string{"config.kubernetes.io/local-config": "false"})
		if _, _, err := Set(t.Context(), f.fs(), "apps", webKey, desired); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetRefusesFieldsThatAnOverlaySets(t *testing.T) {
	f := files{"apps/kustomization.yaml": "resources: [web.yaml]\nreplicas: [{name: web, count: 1}]\n",
		"apps/web.yaml": webYAML}
	doc, err := Find(t.Context(), f.fs(), "apps", webKey)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = Set(t.Context(), f.fs(), "apps", webKey, object(webKey))
	if e := mustConflict(t, err); e.File != "apps/kustomization.yaml" || !strings.Contains(e.Reason, "spec.replicas") {
		t.Errorf("got %v", e)
	}
	doc.Object.SetLabels(map[string]string{"a": "b"})
	if got, _, err := Set(t.Context(), f.fs(), "apps", webKey, doc.Object); err != nil || len(got) != 1 {
		t.Errorf("got %s, %v", got, err)
	}
}

// A namespace that a kustomization sets is not written.
func TestSetKeepsTheNamespaceOfTheKustomization(t *testing.T) {
	f := files{"kustomization.yaml": "namespace: shop\nresources: [web.yaml]\n", "web.yaml": webWithoutNamespace}
	got, doc, err := Set(t.Context(), f.fs(), ".", webKey, object(webKey))
	if err != nil || doc.Object.GetNamespace() != "shop" {
		t.Fatal(err)
	}
	expectFiles(t, got, files{"web.yaml": strings.Replace(webWithoutNamespace, "replicas: 1", "replicas: 5", 1)})
}

func TestSetRefusesAnotherObject(t *testing.T) {
	for _, field := range []string{"name", "namespace"} {
		o := object(webKey)
		if err := unstructured.SetNestedField(o.Object, "x", "metadata", field); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Set(t.Context(), files{"web.yaml": webYAML}.fs(), ".", webKey, o); err == nil {
			t.Errorf("another %s is written", field)
		}
	}
}
