package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/source"
)

const (
	webYAML = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  templot:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: login}}]}
      - {name: side, image: "side:1"}
`
	gardenYAML = `apiVersion: example.com/v1
kind: Garden
metadata: {name: garden}
spec: {beds: [{plot: a, load: 1}, {plot: b, load: 1}]}
`
	// gardenPatch replaces the list of beds, unless a schema has a merge key for it.
	gardenPatch = `apiVersion: example.com/v1
kind: Garden
metadata: {name: garden}
spec: {beds: [{plot: b, load: 2}]}
`
	gardenSchema = `{"definitions": {"com.example.v1.Garden": {
  "properties": {"spec": {"properties": {"beds": {"type": "array",
    "items": {"properties": {"plot": {"type": "string"}, "load": {"type": "integer"}}, "type": "object"},
    "x-kubernetes-patch-merge-key": "plot", "x-kubernetes-patch-strategy": "merge"}}, "type": "object"}},
  "type": "object",
  "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "Garden", "version": "v1"}]}}}
`
	webPatch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec: {templot: {spec: {containers: [{name: side, image: 'side:2'}]}}}\n"
)

// writeTree writes files into a new folder and opens it.
func writeTree(t *testing.T, files map[string]string) (root string, tree *source.Tree) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return root, tree
}

// Each feature of a kustomization builds to the same objects as with kustomize on disk. want is in
// the result, so that the feature has an effect at all.
func TestFeaturesMatchKustomize(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"generators": {want: "settings-", files: map[string]string{
			"k/kustomization.yaml": `resources: [web.yaml]
generatorOptions: {labels: {generated: "yes"}, annotations: {note: a}}
configMapGenerator:
- {name: settings, files: [app.conf, other=sub/b.txt], literals: [A=1, "B=x=y"], envs: [c.env]}
- {name: plain, literals: [A=1], options: {disableNameSuffixHash: true, immutable: true}}
secretGenerator:
- {name: login, type: example.com/login, files: [password.txt], env: c.env}
`,
			"k/app.conf": "a\nb\n", "k/sub/b.txt": "b", "k/c.env": "# none\nC=3\nD=\n", "k/password.txt": "\x00\xff"}},
		"generators that merge and replace": {want: "extra", files: map[string]string{
			"base/kustomization.yaml": "configMapGenerator: [{name: settings, literals: [A=1, B=1]}]\n" +
				"secretGenerator: [{name: login, literals: [A=1, B=1]}]\n",
			"k/kustomization.yaml": `resources: [../base, web.yaml]
configMapGenerator: [{name: settings, behavior: merge, literals: [B=2, extra=3]}]
secretGenerator: [{name: login, behavior: replace, literals: [C=1]}]
`}},
		"components": {want: "side:2", files: map[string]string{
			"k/kustomization.yaml": "resources: [web.yaml]\ncomponents: [../debug, ../more]\nnamePrefix: pre-\n",
			"debug/kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
configMapGenerator: [{name: settings, literals: [debug=true]}]
patches: [{path: patch.yaml}]
`,
			"debug/patch.yaml": webPatch,
			"more/kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [garden.yaml]
replicas: [{name: web, count: 3}]
`,
			"more/garden.yaml": gardenYAML}},
		"replacements": {want: "web-garden-1", files: map[string]string{
			"k/kustomization.yaml": `resources: [web.yaml, garden.yaml]
replacements:
- path: replacement.yaml
- source: {kind: Garden, fieldPath: spec.beds.0.load}
  targets:
  - {select: {kind: Deployment}, fieldPaths: [spec.replicas]}
  - {select: {kind: Deployment}, fieldPaths: [metadata.annotations.load], options: {create: true}}
`,
			"k/replacement.yaml": `source: {kind: Garden, fieldPath: metadata.name}
targets:
- select: {kind: Deployment}
  reject: [{name: other}]
  fieldPaths: ["spec.templot.spec.containers.[name=web].image"]
  options: {delimiter: "-", index: 1}
`,
			"k/web.yaml":    strings.Replace(webYAML, "web:1", "web-x-1", 1),
			"k/garden.yaml": gardenYAML}},
		"vars, labels and images": {want: "registry/web", files: map[string]string{
			"k/kustomization.yaml": `resources: [web.yaml]
labels: [{pairs: {team: a}, includeSelectors: true}]
commonAnnotations: {note: b}
images: [{name: web, newName: registry/web, digest: "sha256:00"}]
nameSuffix: -x
namespace: shop
`}},
		"openapi": {want: "plot: a", files: map[string]string{
			"k/kustomization.yaml": "resources: [garden.yaml]\npatches: [{path: patch.yaml}]\n" +
				"openapi: {path: schema.json}\n",
			"k/garden.yaml": gardenYAML, "k/patch.yaml": gardenPatch, "k/schema.json": gardenSchema}},
		"openapi of a base": {want: "plot: a", files: map[string]string{
			"k/kustomization.yaml":    "resources: [../base, web.yaml]\npatches: [{path: patch.yaml}]\n",
			"k/patch.yaml":            gardenPatch + "---\n" + webPatch,
			"base/kustomization.yaml": "resources: [garden.yaml]\nopenapi: {path: schema.json}\n",
			"base/garden.yaml":        gardenYAML, "base/schema.json": gardenSchema}},
		"openapi without the schema of Kubernetes": {want: "side:2", files: map[string]string{
			"k/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: patch.yaml}]\n" +
				"openapi: {path: schema.json}\n",
			"k/patch.yaml": webPatch, "k/schema.json": gardenSchema}},
		"openapi version": {want: "side:2", files: map[string]string{
			"k/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: patch.yaml}]\n" +
				"openapi: {version: v1.21.2}\n",
			"k/patch.yaml": webPatch}},
		"crds and configurations": {want: "image: registry/bed", files: map[string]string{
			"k/kustomization.yaml": "resources: [garden.yaml]\nconfigurations: [config.yaml]\n" +
				"images: [{name: bed, newName: registry/bed}]\n",
			"k/garden.yaml": strings.Replace(gardenYAML, "spec: {", "spec: {image: 'bed:1', ", 1),
			"k/config.yaml": "images: [{path: spec/image, kind: Garden}]\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.files["k/web.yaml"] == "" {
				test.files["k/web.yaml"] = webYAML
			}
			root, tree := writeTree(t, test.files)
			if !compareBuild(t, tree, root, "k") {
				t.Fatal("it does not build")
			}
			if text := buildText(t, tree); !strings.Contains(text, test.want) {
				t.Errorf("got\n%s\nwhich does not contain %q", text, test.want)
			}
		})
	}
}

// buildText builds the kustomization in the folder k to YAML.
func buildText(t *testing.T, tree *source.Tree) string {
	t.Helper()
	objects, err := Build(t.Context(), tree, "k", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}
