package stacks_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// writeTree writes files to a new folder.
func writeTree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func writeFile(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

const (
	stackHeader = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n  version: 1.0.0\n"
	configMap   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
)

// components returns a stack file with components, which start at line 7.
func components(lines ...string) string {
	return stackHeader + "  components:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func TestLoadRejectsInvalidStacks(t *testing.T) {
	deep := strings.Repeat("{a: ", 200) + "1" + strings.Repeat("}", 200)
	bomb := "      a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i < 'k'; i++ {
		bomb += "        " + string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+string(i-1)+",", 10) + "]\n"
	}
	tests := map[string]struct {
		stack string
		want  []string
	}{
		"empty":     {"", []string{"stack.yaml: the file is empty"}},
		"not UTF-8": {stackHeader + "  # \xff\n", []string{"stack.yaml:6: the file is not UTF-8"}},
		"not YAML":  {stackHeader + "  components: [\n", []string{"stack.yaml:6: this is not valid YAML"}},
		"two documents": {components("- {name: a, manifests: [a.yaml]}") + "---\nkind: Stack\n",
			[]string{"stack.yaml:9: the file must have one YAML document"}},
		"duplicate key": {components("- {name: a, manifests: [a.yaml]}") + "  version: 2.0.0\n",
			[]string{`stack.yaml:8: field "spec.version" is set twice, first on line 5`}},
		"deep": {components("- {name: a, helm: {chart: x, values: " + deep + "}}"),
			[]string{"stack.yaml:7: ", "nested deeper than 100"}},
		"bomb": {components("- name: a", "  helm:", "    chart: x", "    values:", bomb),
			[]string{`stack.yaml:11: component "a": field "helm.values": the document has more than 1000000 values once its aliases are expanded`}},
		"alias to itself": {components("- name: a", "  helm: {chart: x, values: &v {x: *v}}"),
			[]string{"nested deeper than"}},
		"wrong type": {components("- {name: a, dependsOn: b, createNamespace: 3, manifests: [a.yaml]}"),
			[]string{`stack.yaml:7: component "a": field "dependsOn" must be a list, not a string`,
				`field "createNamespace" must be true or false, not a number`}},
		"number for version": {strings.Replace(components("- {name: a, manifests: [a.yaml]}"), "1.0.0", "1.0", 1),
			[]string{`stack.yaml:5: field "spec.version" must be a string, not a number: put it in quotes`}},
		"not semver": {strings.Replace(components("- {name: a, manifests: [a.yaml]}"), "1.0.0", "v1", 1),
			[]string{`stack.yaml:5: field "spec.version" must be a semantic version such as 1.4.0, not "v1"`}},
		"kubernetes range": {components("- {name: a, manifests: [a.yaml]}") + "  kubernetes: new\n",
			[]string{`stack.yaml:8: field "spec.kubernetes" must be a range of versions`}},
		"head": {"apiVersion: v1\nkind: Stak\nmetadata: {name: Demo}\nspec: {version: 1.0.0, " +
			"components: []}\n", []string{`stack.yaml:1: field "apiVersion" must be "apps.ksctl.com/v1", not "v1"`,
			`stack.yaml:2: field "kind" must be "Stack"`, `stack.yaml:3: field "metadata.name" must be a DNS label`,
			`stack.yaml:4: field "spec.components" must list at least one component`}},
		"no content": {components("- {name: a}"),
			[]string{`stack.yaml:7: component "a": the component needs exactly one of helm, kustomize and manifests`}},
		"two contents": {components("- {name: a, manifests: [a.yaml], kustomize: {path: k}}"),
			[]string{`but has kustomize and manifests`, `field "kustomize.path" names k, which is not in the source`}},
		"repository": {components("- {name: a, helm: {repository: 'https://x.example.com', name: x}}"),
			[]string{`field "version" is required: the version of the chart`}},
		"repository, range": {components("- {name: a, version: 1.x, helm: {repository: 'oci://x.example.com', " +
			"name: x}}"), []string{`field "version" must be one exact version of the chart such as 1.4.0, not "1.x"`}},
		"repository, latest": {components("- {name: a, version: latest, " +
			"helm: {repository: 'oci://x.example.com', name: x}}"), []string{`not "latest"`}},
		"repository, no name": {components("- {name: a, version: 1.0.0, helm: {repository: 'http://x.example.com', " +
			"digest: abc}}"), []string{`field "helm.repository" must begin with https:// or oci://, not http://`,
			`field "helm.name" is required`, `field "helm.digest" must be sha256: followed by 64`}},
		"repository, path": {components("- {name: a, version: 1.0.0, " +
			"helm: {repository: 'https://x.example.com?a=b', name: ../x}}"),
			[]string{`field "helm.repository" must not have a query`, `field "helm.name" must be a chart name`}},
		"repository, login": {components("- {name: a, version: 1.0.0, " +
			"helm: {repository: 'https://me:hunter2@x.example.com', name: x}}"),
			[]string{`field "helm.repository" must not contain a user or password; reference a Secret`}},
		"repository, chart": {components("- {name: a, version: 1.0.0, helm: {chart: chart, " +
			"repository: 'https://x.example.com', name: x}}"),
			[]string{`field "helm" has both chart, which is in the source, and repository`}},
		"name, no repository": {components("- {name: a, helm: {chart: chart, name: x}}"),
			[]string{`field "helm" has name or digest, which are for a chart in a repository, but no repository`}},
		"exclusive": {stackHeader + "  exclusive: []\n",
			[]string{`stack.yaml:6: field "spec.exclusive" is not known`}},
		"unknown dependency": {components("- {name: base, manifests: [a.yaml]}",
			"- {name: a, dependsOn: [bsae], manifests: [a.yaml]}"),
			[]string{`stack.yaml:8: component "a": field "dependsOn[0]" names component "bsae", which is not in the stack; did you mean "base"?`}},
		"dependency twice": {components("- {name: base, manifests: [a.yaml]}",
			"- {name: a, dependsOn: [base, base], manifests: [a.yaml]}"), []string{`names component "base" twice`}},
		"cycle": {components("- {name: a, dependsOn: [c], manifests: [a.yaml]}",
			"- {name: b, dependsOn: [a], manifests: [a.yaml]}", "- {name: c, dependsOn: [b], manifests: [a.yaml]}"),
			[]string{`component "a": field "dependsOn" makes a cycle: a → c → b → a`}},
		"before removal": {components("- {name: a, manifests: [a.yaml], preremove: true}"),
			[]string{`component "a": field "preremove" is not known; did you mean "preRemove"?`}},
		"waits for removal": {components("- {name: drain, manifests: [a.yaml], preRemove: true}",
			"- {name: a, dependsOn: [drain], manifests: [a.yaml]}"),
			[]string{`stack.yaml:8: component "a": field "dependsOn[0]" names component "drain", which has preRemove`}},
		"own dependency": {components("- {name: a, dependsOn: [a], manifests: [a.yaml]}"),
			[]string{`makes a cycle: a → a`}},
		"name twice": {components("- {name: a, manifests: [a.yaml]}", "- {name: a, manifests: [a.yaml]}"),
			[]string{`stack.yaml:8: component "a": field "name" is already used by component 1; names must be unique`}},
		"bad name": {components("- {name: A_b, manifests: [a.yaml]}"),
			[]string{`field "name" must be a DNS label`}},
		"path leaves": {components("- {name: a, manifests: [../../x]}"),
			[]string{`stack.yaml:7: component "a": field "manifests[0]" is invalid: the path "../../x" leaves the source`}},
		"path absolute": {components("- {name: a, manifests: [/etc/passwd]}"), []string{`is absolute`}},
		"path missing": {components("- {name: a, manifests: [gone.yaml]}"),
			[]string{`names gone.yaml, which is not in the source`}},
		"path empty": {components("- {name: a, manifests: ['']}"),
			[]string{`field "manifests[0]" is required`}},
		"release name": {components("- {name: a, helm: {chart: chart, releaseName: A}}"),
			[]string{`field "helm.releaseName" is the Helm release name`}},
		"chart version": {components("- {name: a, version: 2.0.0, helm: {chart: chart}}"),
			[]string{`field "version" is 2.0.0, but the chart chart in the source has version 1.0.0`}},
		"not a chart": {components("- {name: a, helm: {chart: empty}}"),
			[]string{`empty: component "a": there is no Chart.yaml: this is not a chart`}},
		"library chart": {components("- {name: a, helm: {chart: library}}"),
			[]string{`library/Chart.yaml: component "a": this is a library chart`}},
		"values file": {components("- {name: a, helm: {chart: chart, valuesFiles: [list.yaml]}}"),
			[]string{`list.yaml:1: component "a": a mapping is expected here, not a list`}},
		"schema": {components("- {name: a, helm: {chart: chart}, schema: {type: strin}}"),
			[]string{`field "schema" is not a valid JSON schema: type`}},
		"schema elsewhere": {components("- {name: a, helm: {chart: chart}, " +
			"schema: {$ref: 'https://x.example.com/s.json'}}"),
			[]string{`refers to https://x.example.com/s.json; only references within the schema are allowed`}},
		"schema file": {components("- {name: a, helm: {chart: chart}, schema: {$ref: 'file:///etc/passwd'}}"),
			[]string{`refers to file:///etc/passwd`}},
		"schema of no chart": {components("- {name: a, manifests: [a.yaml], schema: {}}"),
			[]string{`field "schema" is for Helm values`}},
		"reserved parameter": {components("- {name: a, manifests: [a.yaml], parameters: " +
			"{schema: {properties: {images: {}}}}}"), []string{`declares "images", which is a reserved override key`}},
		"wrong default": {components("- {name: a, manifests: [a.yaml], " +
			"parameters: {schema: {properties: {n: {type: object, properties: {m: {type: integer, default: x}}}}}}}"),
			[]string{`has a default for "n.m" that it does not allow`}},
		"map syntax": {components("- {name: a, manifests: [a.yaml], " +
			"parameters: {schema: {}, map: 'params.'}}"),
			[]string{`stack.yaml:7: component "a": field "parameters.map" does not compile: Syntax error`}},
		"map variable": {components("- {name: a, manifests: [a.yaml], parameters: {schema: {}, " +
			"map: '{\"values\": parms}'}}"), []string{`undeclared reference to 'parms'`, "at 1:12 of the expression"}},
		"map type": {components("- {name: a, manifests: [a.yaml], parameters: {schema: {}, map: '1 + 1'}}"),
			[]string{`must return a map, not int`}},
		"readyExpr": {components("- {name: a, manifests: [a.yaml], readyExpr: 'self.x + '}"),
			[]string{`field "readyExpr" does not compile`}},
		"readyExpr type": {components("- {name: a, manifests: [a.yaml], readyExpr: '\"yes\"'}"),
			[]string{`must return true or false, not string`}},
		"several at once": {components("- {name: a, manifests: [gone.yaml], nmespace: x}",
			"- {name: b, manifets: [a.yaml]}"), []string{`field "nmespace" is not known; did you mean "namespace"?`,
			`component "b": field "manifets" is not known; did you mean "manifests"?`}},
		"null component": {components("- null"), []string{`component "#1": field "name" must be a DNS label`}},
		"kustomize is a file": {components("- {name: a, kustomize: {path: a.yaml}}"),
			[]string{`which is a file; a folder with a kustomization is expected`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := writeTree(t, map[string]string{
				"stack.yaml": tt.stack, "a.yaml": configMap, "list.yaml": "- 1\n", "empty/x": "",
				"chart/Chart.yaml":   "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
				"library/Chart.yaml": "apiVersion: v2\nname: library\nversion: 1.0.0\ntype: library\n",
			})
			_, err := stacks.Load(root, ".", "demo")
			if err == nil {
				t.Fatal("Load succeeded")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got:\n%v\nwant:\n%s", err, want)
				}
			}
			if strings.Contains(err.Error(), root) {
				t.Errorf("the message contains the folder of the source: %v", err)
			}
		})
	}
}

func TestLoadFindsStackFile(t *testing.T) {
	root := writeTree(t, map[string]string{
		"stacks/demo/stack.yaml": components("- {name: a, manifests: [../shared/a.yaml]}"),
		"stacks/shared/a.yaml":   configMap,
		"own/stack.yaml":         components("- {name: a, manifests: [../stacks/shared]}"),
		"other/stack.yaml": strings.Replace(components("- {name: a, manifests: [../stacks/shared]}"), "demo",
			"other", 1),
		"stacks/monitor/stack.yaml": "",
	})
	for dir, file := range map[string]string{"stacks": "stacks/demo/stack.yaml", "./stacks/": "stacks/demo/stack.yaml",
		"stacks/demo": "stacks/demo/stack.yaml", "own": "own/stack.yaml"} {
		def, err := stacks.Load(root, dir, "demo")
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if def.File() != file {
			t.Errorf("%s: found %s, want %s", dir, def.File(), file)
		}
	}
	for _, tt := range []struct{ dir, stack, want string }{
		{"other", "demo", `other/stack.yaml:3: the stack in this file is "other", not "demo"`},
		{"stacks", "demmo",
			`stack "demmo": there is neither stacks/stack.yaml nor stacks/demmo/stack.yaml in the source; did you mean "demo"?`},
		{"../stacks", "demo", `leaves the source`},
		{"/stacks", "demo", `is absolute`},
		{"stacks", "../own", `must be a DNS label`},
	} {
		if _, err := stacks.Load(root, tt.dir, tt.stack); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: got %v, want %s", tt.dir, tt.stack, err, tt.want)
		}
	}
}

// Load and Render read nothing outside the root, even through a symbolic link.
func TestLoadRejectsLinksOutOfTheSource(t *testing.T) {
	outside := writeTree(t, map[string]string{"stack.yaml": components("- {name: a, manifests: [a.yaml]}"),
		"a.yaml": configMap, "Chart.yaml": "name: x\nversion: 1.0.0\n", "kustomization.yaml": "resources: []\n"})
	for name, link := range map[string]struct{ at, to string }{
		"stack file":       {"stack.yaml", filepath.Join(outside, "stack.yaml")},
		"stack folder":     {"demo", outside},
		"manifest":         {"a.yaml", filepath.Join(outside, "a.yaml")},
		"relative":         {"a.yaml", "../" + filepath.Base(outside) + "/a.yaml"},
		"manifests folder": {"m", outside},
		"inside a folder":  {"m/x/a.yaml", filepath.Join(outside, "a.yaml")},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"keep": ""}
			manifest := "a.yaml"
			if strings.HasPrefix(link.at, "m") {
				manifest = "m"
			}
			if !strings.HasPrefix(name, "stack") {
				files["stack.yaml"] = components("- {name: a, manifests: [" + manifest + "]}")
			}
			root := writeTree(t, files)
			at := filepath.Join(root, link.at)
			if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(link.to, at); err != nil {
				t.Fatal(err)
			}
			result, err := stacks.Render(t.Context(), stacks.Request{Root: root, Path: ".", Stack: "demo"})
			if err == nil {
				t.Fatalf("a file outside the root was read: %v", result)
			}
			if strings.Contains(err.Error(), outside) {
				t.Errorf("the message contains the target of the link: %v", err)
			}
		})
	}
}

func TestLoadIsBounded(t *testing.T) {
	big := writeTree(t,
		map[string]string{"stack.yaml": components("- {name: a, manifests: [a.yaml]}") + "#" +
			strings.Repeat("x", 1<<20)})
	if _, err := stacks.Load(big, ".", "demo"); err == nil || !strings.Contains(err.Error(), "1048576 are allowed") {
		t.Errorf("a file of more than 1 MiB: %v", err)
	}
	var many []string
	for i := range 300 {
		many = append(many, "- {name: c"+strconv.Itoa(i)+", manifests: [a.yaml]}")
	}
	root := writeTree(t, map[string]string{"stack.yaml": components(many...), "a.yaml": configMap})
	if _, err := stacks.Load(root, ".", "demo"); err == nil ||
		!strings.Contains(err.Error(), "has 300 components; 256 are allowed") {
		t.Errorf("300 components: %v", err)
	}
	release := strings.Repeat("r", 54)
	named := writeTree(t,
		map[string]string{"stack.yaml": components("- {name: a, helm: {chart: c, releaseName: " + release + "}}"),
			"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n"})
	if _, err := stacks.Load(named, ".", "demo"); err == nil ||
		!strings.Contains(err.Error(), "at most 53 characters") {
		t.Errorf("a release name of 54 characters: %v", err)
	}
	folder := writeTree(t, map[string]string{"stack.yaml/x": ""})
	if _, err := stacks.Load(folder, ".", "demo"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder called stack.yaml: %v", err)
	}
	loop := writeTree(t,
		map[string]string{"stack.yaml": components("- {name: a, manifests: [m]}"), "m/x.yaml": configMap})
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink("../m", filepath.Join(loop, "m", name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stacks.Render(t.Context(), stacks.Request{Root: loop, Stack: "demo"}); err == nil ||
		!strings.Contains(err.Error(), "too many levels of symbolic links") {
		t.Errorf("a folder with a link to itself: %v", err)
	}
}

// Errors are typed, so that a caller can show file and line.
func TestLoadErrorsAreTyped(t *testing.T) {
	root := writeTree(t,
		map[string]string{"stack.yaml": components("- {name: a, manifests: [gone.yaml]}", "- {name: b, manifets: []}")})
	_, err := stacks.Load(root, ".", "demo")
	many, ok := errors.AsType[stacks.Errors](err)
	if !ok {
		t.Fatalf("%T", err)
	}
	want := stacks.Error{File: "stack.yaml", Line: 8, Component: "b", Field: "manifets",
		Message: `field "manifets" is not known`, Suggestion: "manifests"}
	if *many[0] != want {
		t.Errorf("got %+v, want %+v", *many[0], want)
	}
	if one, ok := errors.AsType[*stacks.Error](err); !ok || one != many[0] {
		t.Errorf("errors.As finds %v", one)
	}
}
