package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// files are the files of a repository.
type files map[string]string

func (f files) fs() fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range f {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const (
	webYAML = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 1 # one
`
	webWithoutNamespace = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n"
	otherYAML           = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: shop}\n"
)

var webKey = Key{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func TestFind(t *testing.T) {
	for name, test := range map[string]struct {
		files files
		file  string
	}{
		"a file": {files{"apps/web.yaml": webYAML, "other/web.yaml": webYAML}, "apps/web.yaml"},
		"another group": {files{"apps/web.yaml": webYAML, "apps/x.yaml": strings.Replace(webYAML, "apps/v1",
			"x/v1", 1)}, "apps/web.yaml"},
		"several documents": {files{"apps/all.yml": "# all\n---\n" + otherYAML + "--- # web\n" + webYAML + "...\n"},
			"apps/all.yml"},
		"hidden files are ignored": {files{"apps/web.yaml": webYAML, "apps/.old/web.yaml": webYAML,
			"apps/.web.yaml": webYAML}, "apps/web.yaml"},
		"a kustomization lists it": {files{"apps/kustomization.yml": "resources: [sub, other.yaml]\n",
			"apps/other.yaml": otherYAML, "apps/sub/Kustomization": "resources: [deep/web.yaml]\n",
			"apps/sub/deep/web.yaml": webYAML, "apps/sub/unlisted.yaml": webYAML}, "apps/sub/deep/web.yaml"},
		"a component lists it": {files{"apps/kustomization.yaml": "components: [c]\n",
			"apps/c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
				"resources: [web.yaml]\n", "apps/c/web.yaml": webYAML}, "apps/c/web.yaml"},
		"the namespace of a kustomization": {files{"apps/kustomization.yaml": "namespace: shop\nresources: [sub]\n",
			"apps/sub/kustomization.yaml": "namespace: inner\nresources: [web.yaml]\n",
			"apps/sub/web.yaml":           webWithoutNamespace}, "apps/sub/web.yaml"},
		"an overlay without one above": {files{"apps/overlays/a/kustomization.yaml": "namespace: shop\n" +
			"resources: [../../base]\nlabels: [{pairs: {a: b}}]\n",
			"apps/base/kustomization.yaml": "resources: [web.yaml]\n", "apps/base/web.yaml": webWithoutNamespace},
			"apps/base/web.yaml"},
		"a broken file elsewhere": {files{"apps/web.yaml": webYAML,
			"apps/chart.yaml": "{{ .web }}: Deployment {\n"}, "apps/web.yaml"},
		"an encrypted one elsewhere": {files{"apps/web.yaml": webYAML, "apps/s.yaml": encryptedYAML}, "apps/web.yaml"},
		"a broken file that is listed": {files{"apps/kustomization.yaml": "resources: [web.yaml, b.yaml]\n",
			"apps/web.yaml": webYAML, "apps/b.yaml": "a: [\n"}, "apps/web.yaml"},
		"a list with others": {files{"apps/web.yaml": webYAML, "apps/l.yaml": "kind: List\n" +
			"items: [{kind: Pod, metadata: {name: web}}]\n"}, "apps/web.yaml"},
		"a merge key of another object": {files{"apps/web.yaml": webYAML, "apps/x.yaml": "apiVersion: apps/v1\n" +
			"kind: Deployment\nmetadata: {<<: {labels: {a: web}}, name: x}\n"}, "apps/web.yaml"},
		"JSON": {files{"apps/web.json": `{"apiVersion": "apps/v2", "kind": "Deployment", "metadata": {"name": "w\u0065b", "namespace": "shop"}}`}, "apps/web.json"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := Find(t.Context(), test.files.fs(), "apps", webKey)
			if err != nil {
				t.Fatal(err)
			}
			if doc.File != test.file || doc.Object.GetNamespace() != "shop" || len(doc.Hash) != 64 {
				t.Errorf("got %s in %s, %s", doc.Object, doc.File, doc.Hash)
			}
		})
	}
}

// Kustomizations that only list files need no build: it makes the same objects.
func TestListedObjectsAreAsBuilt(t *testing.T) {
	binding := "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: web}\n" +
		"subjects: [{kind: ServiceAccount, name: default, namespace: x}]\n"
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {}, creationTimestamp: null}\n" +
		"spec: {a: yes, b: 1e3, c: 010, d: 1_000, e: 2026-01-01, f: ~, g: 'no', i: [{}]}\n"
	for namespace, changed := range map[string]bool{"": false, "namespace: shop\n": true} {
		tree, err := Load(t.Context(), files{"kustomization.yaml": namespace + "resources: [a, c.yaml]\n",
			"c.yaml": binding, "a/kustomization.yaml": "bases: [b]\n",
			"a/b/kustomization.yaml": "resources: [s.yaml, w.yaml]\n",
			"a/b/s.yaml":             service, "a/b/w.yaml": webWithoutNamespace}.fs(), ".")
		if err != nil {
			t.Fatal(err)
		}
		if !tree.listsOnly(".") || len(tree.included) != 3 {
			t.Fatal("the kustomization is built")
		}
		objects, err := tree.render(".")
		if err != nil || len(objects) != 3 {
			t.Fatal(objects, err)
		}
		for _, o := range objects {
			for file, how := range tree.included {
				data, err := tree.read(file)
				if err != nil {
					t.Fatal(err)
				}
				_, value, err := parseValue(data)
				if err != nil {
					t.Fatal(err)
				}
				if value["kind"] != o["kind"] {
					continue
				}
				if unchanged := isUnchanged(value,
					how[0].namespace); unchanged == (changed && o["kind"] == "RoleBinding") {
					t.Errorf("%s: isUnchanged is %t", file, unchanged)
				} else if field := changedField(value, o); unchanged && field != "" {
					t.Errorf("%s: %s differs: %v, %v", file, field, value, o)
				}
				if got := keyOfValue(o).Namespace; got != how[0].namespace {
					t.Errorf("%s has the namespace %s", file, got)
				}
			}
		}
	}
}

// Kustomizations that include each other again and again are refused.
func TestManyInclusionsAreRefused(t *testing.T) {
	f := files{"k/kustomization.yaml": "resources: [../k0, ../k0]\n",
		"k40/kustomization.yaml": "resources: [web.yaml]\n",
		"k40/web.yaml":           webYAML, "loop/kustomization.yaml": "resources: [../loop]\n"}
	for i := range 40 {
		f[fmt.Sprintf("k%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../k%d, ../k%d]\n", i+1, i+1)
	}
	for _, root := range []string{"k", "loop"} {
		_, err := Find(t.Context(), f.fs(), root, webKey)
		if e := mustConflict(t, err); e.NotFound || e.Key != webKey {
			t.Errorf("got %v", e)
		}
	}
}

// The hash is that of the document alone.
func TestHashIsOfTheDocument(t *testing.T) {
	hash := func(text string) string {
		doc, err := Find(t.Context(), files{"a.yaml": text}.fs(), ".", webKey)
		if err != nil {
			t.Fatal(err)
		}
		return doc.Hash
	}
	all := otherYAML + "---\n" + webYAML + "---\n" + otherYAML
	if hash(all) != hash(strings.ReplaceAll(all, "other", "another")) {
		t.Error("the hash depends on other documents")
	}
	if hash(all) == hash(strings.Replace(all, "# one", "# 1", 1)) {
		t.Error("the hash does not depend on comments")
	}
}

const encryptedYAML = `apiVersion: apps/v1
kind: Secret
metadata: {name: web, namespace: shop}
data: {a: "ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]"}
sops: {mac: "ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]", lastmodified: "2026-01-01T00:00:00Z", version: 3.9.0}
`

func TestFindConflicts(t *testing.T) {
	overlay := func(text string) files {
		return files{"apps/kustomization.yaml": text, "apps/base/kustomization.yaml": "resources: [web.yaml]\n",
			"apps/base/web.yaml": webYAML}
	}
	for name, test := range map[string]struct {
		files        files
		file, reason string
	}{
		"two documents": {files{"apps/a.yaml": webYAML, "apps/b.yaml": otherYAML + "---\n" + webYAML}, "apps/b.yaml",
			"another document of the object, which is also in apps/a.yaml"},
		"encrypted": {files{"apps/web.yaml": strings.Replace(encryptedYAML, "Secret", "Deployment", 1)},
			"apps/web.yaml",
			"encrypted with SOPS"},
		"anchor": {files{"apps/web.yaml": otherYAML + "---\n" + webYAML + "  a: &x [1]\n  b: *x\n"},
			"apps/web.yaml", "(line 12)"},
		"merge key": {files{"apps/web.yaml": webYAML + "x: {<<: {a: b}}\n"}, "apps/web.yaml", "merge key"},
		"merged name": {files{"apps/web.yaml": "x: &m {name: web, namespace: shop}\napiVersion: apps/v1\n" +
			"kind: Deployment\nmetadata: {<<: *m}\n"}, "apps/web.yaml", "merge key (line 4), which may set its name"},
		"merged metadata": {files{"apps/web.yaml": otherYAML + "---\n<<: {metadata: {name: web, namespace: shop}}\n" +
			"apiVersion: apps/v1\nkind: Deployment\n"}, "apps/web.yaml", "merge key (line 5)"},
		"twice a key": {files{"apps/web.yaml": webYAML + "  replicas: 2\n"}, "apps/web.yaml",
			`"replicas" is set twice`},
		"list": {files{"apps/web.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n" +
			"  kind: Deployment\n" +
			"  metadata: {name: web, namespace: shop}\n"}, "apps/web.yaml", "item of a list"},
		"template":     {files{"apps/web.yaml": webYAML + "  {{- if .x }}\n"}, "apps/web.yaml", "not valid YAML"},
		"no namespace": {files{"apps/web.yaml": webWithoutNamespace}, "apps/web.yaml", "set metadata.namespace"},
		"patched": {overlay("resources: [base]\nreplicas: [{name: web, count: 2}]\n"), "apps/kustomization.yaml",
			"changes the field spec.replicas"},
		"patched further in": {files{"apps/kustomization.yaml": "resources: [mid]\n",
			"apps/mid/kustomization.yaml": "resources: [base]\n" +
				"patches: [{patch: \"- {op: add, path: /spec/x, value: 1}\", " +
				"target: {kind: Deployment}}]\n", "apps/mid/base/kustomization.yaml": "resources: [web.yaml]\n",
			"apps/mid/base/web.yaml": webYAML}, "apps/mid/kustomization.yaml", "spec.x"},
		"labeled selector": {overlay("resources: [base]\ncommonLabels: {a: b}\n"), "apps/kustomization.yaml",
			"spec.selector"},
		"renamed": {overlay("resources: [base]\nnamePrefix: a-\n"), "apps/kustomization.yaml", "renames"},
		"removed": {overlay("resources: [base]\npatches: [{patch: '{$patch: delete, apiVersion: apps/v1, " +
			"kind: Deployment, metadata: {name: web, namespace: shop}}'}]\n"), "apps/kustomization.yaml", "removes it"},
		"named by a kustomization": {files{"apps/kustomization.yaml": "resources: [b.yaml]\nnamePrefix: w\n",
			"apps/b.yaml": strings.Replace(webYAML, "name: web", "name: eb", 1)}, "apps/kustomization.yaml",
			"something other than a document with its name"},
		"generated elsewhere": {files{"apps/a/kustomization.yaml": "namespace: shop\nresources: [../base]\n",
			"apps/b/kustomization.yaml":    "namespace: b\nresources: [../base]\n",
			"apps/base/kustomization.yaml": "resources: [web.yaml]\n", "apps/base/web.yaml": webYAML},
			"apps/base/web.yaml", "apps/a/kustomization.yaml, apps/b/kustomization.yaml include"},
		"outside the folder": {files{"apps/kustomization.yaml": "resources: [../base]\n",
			"base/kustomization.yaml": "resources: [web.yaml]\n", "base/web.yaml": webYAML}, "base/web.yaml",
			"outside the folder apps"},
		"remote base": {overlay("resources: [base, 'https://example.com/x']\n"), "apps/kustomization.yaml",
			"cannot be built"},
		"missing file": {overlay("resources: [base, none.yaml]\n"), "apps/kustomization.yaml", "cannot be built"},
		"missing file of another": {files{"apps/a/kustomization.yaml": "resources: [none.yaml]\n",
			"apps/x.yaml": otherYAML}, "apps/a/kustomization.yaml", "cannot be built"},
		"local configuration": {files{"apps/kustomization.yaml": "namespace: shop\nresources: [b.yaml]\n",
			"apps/b.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other}\n---\n" +
				strings.Replace(webYAML, "  name: web\n", "  name: web\n"+
					"  annotations: {config.kubernetes.io/local-config: 'true'}\n", 1)},
			"apps/kustomization.yaml", "removes it"},
		"local configuration without a kustomization": {files{"apps/web.yaml": strings.Replace(webYAML, "  name: web\n",
			"  name: web\n  annotations: {config.kubernetes.io/local-config: 'true'}\n", 1)}, "apps/web.yaml",
			"config.kubernetes.io/local-config"},
		"path is a file": {files{"apps": "x"}, "apps", "not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			for verb, err := range allErrors(t, test.files, "apps", webKey) {
				e := mustConflict(t, err)
				if e.NotFound || e.Key != webKey || e.File != test.file || !strings.Contains(e.Reason, test.reason) {
					t.Errorf("%s: got %v in %s, want %s in %s", verb, e, e.File, test.reason, test.file)
				}
			}
		})
	}
}

// The file that breaks a kustomization may be that of another team.
func TestConflictDoesNotQuoteOtherFiles(t *testing.T) {
	for verb, err := range allErrors(t, files{"apps/kustomization.yaml": "resources: [web.yaml, secret.yaml]\n" +
		"commonLabels: {a: b}\n", "apps/web.yaml": webYAML,
		"apps/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" +
			"stringData: private-value\nstringData: x\n"},
		"apps", webKey) {
		e := mustConflict(t, err)
		if strings.Contains(e.Error(), "private") || strings.Contains(e.Error(), "stringData") || e.Err == nil ||
			!strings.Contains(e.Reason, "cannot be built") {
			t.Errorf("%s: %v (%v)", verb, e, e.Err)
		}
	}
}

// allErrors returns the errors of all functions.
func allErrors(t *testing.T, f files, root string, key Key) map[string]error {
	_, find := Find(t.Context(), f.fs(), root, key)
	_, _, set := Set(t.Context(), f.fs(), root, key, object(key))
	_, remove := Remove(t.Context(), f.fs(), root, key)
	return map[string]error{"Find": find, "Set": set, "Remove": remove}
}

func object(key Key) *unstructured.Unstructured {
	apiVersion := "v1"
	if key.Group != "" {
		apiVersion = key.Group + "/v1"
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(5)}}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(key.Kind)
	o.SetName(key.Name)
	o.SetNamespace(key.Namespace)
	return o
}

func TestFindReportsNoDocument(t *testing.T) {
	for name, f := range map[string]files{
		"empty": {"x": ""},
		"others": {"apps/other.yaml": otherYAML, "apps/web.yaml": strings.Replace(webYAML,
			": shop", ": other", 1)},
		"not in it": {"web.yaml": webYAML},
		"unlisted": {"apps/kustomization.yaml": "resources: [a.yaml]\n", "apps/a.yaml": otherYAML,
			"apps/web.yaml": webYAML},
		"unrelated broken file": {"apps/a.yaml": "web: [\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(t.Context(), f.fs(), "apps", webKey)
			if e := mustConflict(t, err); !e.NotFound {
				t.Errorf("got %v", e)
			}
			_, err = Remove(t.Context(), f.fs(), "apps", webKey)
			if e := mustConflict(t, err); !e.NotFound {
				t.Errorf("got %v", e)
			}
		})
	}
}

func TestFindRefusesPathsOutside(t *testing.T) {
	for _, root := range []string{"..", "../x", "a/../../x"} {
		_, err := Find(t.Context(), files{"x": ""}.fs(), root, webKey)
		_ = mustConflict(t, err)
	}
}

// expectFiles compares the files to write. An empty text is a deleted file.
func expectFiles(t *testing.T, got map[string][]byte, want files) {
	t.Helper()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("got %v", names)
	}
	for name, text := range want {
		if string(got[name]) != text || (text == "") != (got[name] == nil) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got[name], text)
		}
	}
}

const newWeb = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 5
`
