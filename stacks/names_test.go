package stacks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const namesHeader = stackHeader + `  parameters:
    schema:
      properties:
        zone: {type: string, default: eu}
        count: {type: integer, default: 2}
`

// namesStack is a stack with components that refer to objects of each other.
func namesStack(components string) map[string]string {
	return map[string]string{
		"stack.yaml": namesHeader + "  components:\n" + components,
		"app/all.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      containers: [{name: app, image: old, envFrom: [{configMapRef: {name: settings}}]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: Namespace
metadata: {name: extra}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: web, namespace: team}]
`,
		"settings/all.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, labels: {a: " +
			"b}}\ndata: {a: b}\n",
		"copy/all.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: " +
			"[{name: a, envFrom: [{configMapRef: {name: settings}}]}]}\n",
		"k/all.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: k}\n",
		"k/kustomization.yaml": "resources: [all.yaml]\n",
		"component/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: " +
			"from-component-\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 2.0.0\n",
		"chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\n" +
			"data: {v: '{{ .Chart.Version }}'}\n",
	}
}

func namesRequest(t testing.TB, components string, choices stacks.Choices) stacks.Request {
	t.Helper()
	return stacks.Request{Root: writeTree(t, namesStack(components)), Stack: "demo", Choices: choices,
		Install:      stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}}
}

// manifests returns the manifests of a result, one per line.
func manifests(t testing.TB, req stacks.Request) string {
	t.Helper()
	var out strings.Builder
	for _, c := range mustRender(t, req).Components {
		for _, o := range c.Objects {
			out.Write(o.Manifest)
			out.WriteString("\n")
		}
	}
	return out.String()
}

func mustContain(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s\nis not in\n%s", part, text)
		}
	}
}

// A prefix and a suffix change names, and the references to them in all components.
func TestNamePrefix(t *testing.T) {
	out := manifests(t,
		namesRequest(t, `  - {name: settings, manifests: [settings/], namePrefix: {expr: stack.zone + '-'}}
  - name: web
    manifests: [app/]
    nameSuffix: "-2"
    fields: [{target: {kind: Deployment, name: web}, path: spec.replicas, value: stack.count}]
    patches:
    - {target: {kind: Deployment, name: web}, patch: {metadata: {annotations: {by: old}}}}
    - {target: {kind: Deployment, name: my-web-2}, patch: {metadata: {labels: {by: new}}}}
    - patch: {apiVersion: v1, kind: ServiceAccount, metadata: {name: web, labels: {by: own}}}
`, stacks.Choices{Components: []stacks.ComponentChoice{{Name: "web", NamePrefix: "my-", Override: map[string]any{
			"replicas": []any{map[string]any{"name": "web", "count": int64(4)}}}}}}))
	mustContain(t, out, `"kind":"ConfigMap","metadata":{"labels":{"a":"b"},"name":"eu-settings"`,
		`"configMapRef":{"name":"eu-settings"}`, `"serviceAccountName":"my-web-2"`,
		`"name":"my-web-2","namespace":"team"`,
		`"subjects":[{"kind":"ServiceAccount","name":"my-web-2","namespace":"team"}]`, `"name":"extra"`,
		`"name":"view"`,
		`"matchLabels":{"app":"web"}`, `"replicas":4`, `"annotations":{"by":"old"}`, `"labels":{"by":"new"}`,
		`"labels":{"by":"own"}`)
}

// One chart may be there twice, with other names.
func TestPrefixedCopies(t *testing.T) {
	out := manifests(t, namesRequest(t, `  - {name: one, manifests: [copy/, settings/], namePrefix: one-}
  - {name: two, manifests: [copy/, settings/], namePrefix: two-}
`, stacks.Choices{}))
	mustContain(t, out, `"configMapRef":{"name":"one-settings"}`, `"configMapRef":{"name":"two-settings"}`)
}

// A component without a prefix that has an object itself keeps its references to that one.
func TestReferencesStayInTheirComponent(t *testing.T) {
	out := manifests(t, namesRequest(t, `  - {name: one, manifests: [copy/, settings/], namePrefix: p-}
  - {name: two, manifests: [copy/, settings/]}
`, stacks.Choices{}))
	mustContain(t, out, `"configMapRef":{"name":"p-settings"}`, `"configMapRef":{"name":"settings"}`)
}

// Annotations for kustomize, and hooks of the same name for other events, do not disturb a prefix.
func TestPrefixOfUnusualObjects(t *testing.T) {
	files := namesStack("  - {name: c, helm: {chart: chart}, namePrefix: p-}\n  - {name: m, manifests: [settings/]}\n")
	files["settings/all.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  annotations: " +
		"{config.kubernetes.io/local-config: 'true', internal.config.kubernetes.io/previousNames: z}\n"
	for _, event := range []string{"pre-delete", "post-delete"} {
		files["chart/templates/"+event+".yaml"] = "apiVersion: v1\nkind: Pod\nmetadata: {name: last, annotations: " +
			"{helm.sh/hook: " + event + "}}\nspec: {containers: [{name: a, envFrom: [{configMapRef: {name: c}}]}]}\n"
	}
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}}
	mustContain(t, manifests(t, req), `"name":"settings"`, `"config.kubernetes.io/local-config":"true"`, `"name":"p-c"`)
}

func TestCommonMetadata(t *testing.T) {
	req := namesRequest(t, `  - {name: settings, manifests: [settings/]}
  - {name: web, manifests: [app/], commonMetadata: {labels: {from: component, component: x}}}
`, stacks.Choices{CommonMetadata: &stacks.CommonMetadata{Labels: map[string]string{"from": "install"},
		Annotations: map[string]string{"note": "1"}},
		Components: []stacks.ComponentChoice{{Name: "settings",
			CommonMetadata: &stacks.CommonMetadata{Labels: map[string]string{"from": "choice", "a": "c"}}}}})
	out := manifests(t, req)
	mustContain(t, out, `"labels":{"a":"c","from":"choice"},"name":"settings"`,
		`"metadata":{"annotations":{"note":"1"},"labels":{"component":"x","from":"install"},"name":"web"`,
		`"matchLabels":{"app":"web"}`, `"template":{"metadata":{"labels":{"app":"web"}}`)
}

func TestKustomizeComponents(t *testing.T) {
	choices := stacks.Choices{Components: []stacks.ComponentChoice{{Name: "k",
		KustomizeComponents: []string{"../component"}}}}
	out := manifests(t, namesRequest(t, "  - {name: k, kustomize: {path: k}}\n", choices))
	mustContain(t, out, `"name":"from-component-k"`)
}

// Names that depend on parameters.
func TestNameExpressions(t *testing.T) {
	out := mustRender(t, namesRequest(t, `  - name: c
    namespace: {expr: "'ns-' + stack.zone"}
    version: {expr: "string(stack.count) + '.0.0'"}
    helm: {chart: chart, releaseName: {expr: stack.zone + '-' + name}}
  - {name: m, manifests: [settings/], version: {expr: version}, fields: [{target: {kind: ConfigMap}, path: data.a, value: version}]}
`, stacks.Choices{Parameters: map[string]any{"zone": "us"}}))
	c := out.Components[0]
	if c.Release.Name != "us-site" || c.Release.Namespace != "ns-us" || c.Version != "2.0.0" ||
		c.Objects[0].Name != "us-site" || c.Objects[0].Namespace != "ns-us" {
		t.Errorf("got %+v", c.Release)
	}
	mustContain(t, string(out.Components[1].Objects[0].Manifest), `"a":"1.0.0"`)
}

// A chart whose version is an expression is known when the parameters are.
func TestChartOfExpressionIsMissing(t *testing.T) {
	req := namesRequest(t, `  - name: c
    version: {expr: "stack.zone == 'eu' ? '1.0.0' : '2.0.0'"}
    helm: {repository: 'https://charts.example.com', name: {expr: "'app-' + stack.zone"}}
`, stacks.Choices{})
	refs, err := stacks.RequiredCharts(req)
	if err != nil || len(refs) != 0 {
		t.Errorf("got %v, %v", refs, err)
	}
	_, err = stacks.Render(t.Context(), req)
	missing, ok := errors.AsType[*stacks.MissingChartsError](err)
	if !ok || len(missing.Charts) != 1 || missing.Charts[0].Name != "app-eu" || missing.Charts[0].Version != "1.0.0" {
		t.Errorf("got %v", err)
	}
}

func TestInvalidNames(t *testing.T) {
	for components, want := range map[string]string{
		"  - {name: m, manifests: [app/], namespace: {expr: 'stack.count'}}":                              `field "namespace" must return a text, not int`,
		"  - {name: m, manifests: [app/], namespace: {exp: stack.zone}}":                                  `did you mean "expr"?`,
		"  - {name: m, manifests: [app/], namespace: {expr: ''}}":                                         `field "namespace" needs an expression in expr`,
		"  - {name: m, manifests: [app/], namespace: 1}":                                                  `put it in quotes`,
		`  - {name: m, manifests: [app/], namespace: {expr: "stack.zone + '!'"}}`:                         `stack.yaml:12: component "m": field "namespace" must be a DNS label, not "eu!"`,
		`  - {name: m, helm: {chart: chart, releaseName: {expr: "'A'"}}}`:                                 `field "helm.releaseName" is the Helm release name`,
		`  - {name: m, helm: {chart: chart}, version: {expr: "'3.0.0'"}}`:                                 `version 3.0.0 is requested, but the chart in the source has version 2.0.0`,
		`  - {name: m, version: {expr: "'1'"}, helm: {repository: 'https://x.example.com', name: x}}`:     `field "version" must be one exact version`,
		`  - {name: m, version: 1.0.0, helm: {repository: 'https://x.example.com', name: {expr: "'/'"}}}`: `field "helm.name" must be a chart name`,
		`  - {name: m, version: 1.0.0, helm: {repository: 'https://x.example.com', name: {expr: "'x'"}, digest: 'sha256:` +
			strings.Repeat("a", 64) + `'}}`: `field "helm.digest" is that of one chart and version`,
		"  - {name: m, manifests: [app/], namePrefix: A}":                                                    `field "namePrefix" must begin names with`,
		"  - {name: m, manifests: [app/], nameSuffix: a-}":                                                   `field "nameSuffix" must end names with`,
		"  - {name: m, manifests: [app/], commonMetadata: {labels: {'a b': x}}}":                             `field "commonMetadata" is invalid: labels`,
		"  - {name: m, manifests: [app/], variables: {a: {expr: ''}}}":                                       `field "variables.a" needs an expression in expr`,
		"  - {name: m, manifests: [app/], variables: {1a: x}}":                                               `field "variables.1a" must be a name`,
		"  - {name: m, manifests: [app/], variables: {a: {expr: '[1]'}}}":                                    `field "variables.a" must return a text, a number, or true or false`,
		"  - {name: a, manifests: [app/], namePrefix: x-}\n  - {name: b, manifests: [app/], namePrefix: x-}": `Namespace "extra"`,
	} {
		_, err := stacks.Render(t.Context(), namesRequest(t, components+"\n", stacks.Choices{}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", components, err, want)
		}
	}
}

// A mapping without an expression is an error wherever a text or {expr: CEL} is expected.
func TestTextsWithoutExpression(t *testing.T) {
	for field, form := range map[string]string{
		"namespace": "manifests: [app/], namespace: %s", "version": "manifests: [app/], version: %s",
		"namePrefix": "manifests: [app/], namePrefix: %s", "nameSuffix": "manifests: [app/], nameSuffix: %s",
		"variables.x":      "manifests: [app/], variables: {x: %s}",
		"helm.releaseName": "helm: {chart: chart, releaseName: %s}",
		"helm.name":        "version: 1.0.0, helm: {repository: 'https://x.example.com', name: %s}",
	} {
		for text, want := range map[string]string{
			"{}":           `" must be a string or a mapping with expr, not an empty mapping`,
			"{from: zone}": `" must be a string or a mapping with expr, not a mapping with from`,
			"{exp: zone}":  `.exp" is not known; did you mean "expr"?`,
			"[]":           `" must be a string or a mapping with expr, not a list`,
			"{expr: }":     `" needs an expression in expr`,
			"{expr: 1}":    `.expr" must be a string, not a number: put it in quotes`,
		} {
			want = `stack.yaml:12: component "m": field "` + field + want
			components := "  - {name: m, " + fmt.Sprintf(form, text) + "}\n"
			_, err := stacks.Render(t.Context(), namesRequest(t, components, stacks.Choices{}))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\n got %v\nwant %s", components, err, want)
			}
		}
	}
}

func TestInvalidNamesOfInstall(t *testing.T) {
	for want, choices := range map[string]stacks.Choices{
		`namePrefix of the install must begin names`: {Components: []stacks.ComponentChoice{{Name: "m",
			NamePrefix: "-"}}},
		`kustomizeComponents is for kustomizations`: {Components: []stacks.ComponentChoice{{Name: "m",
			KustomizeComponents: []string{"../x"}}}},
		`spec.commonMetadata of the install is invalid`: {CommonMetadata: &stacks.CommonMetadata{
			Labels: map[string]string{"a": "b c"}}},
		`field "kustomizeComponents": there is no "../gone" in the source`: {
			Components: []stacks.ComponentChoice{{Name: "k",
				KustomizeComponents: []string{"../gone"}}}},
	} {
		_, err := stacks.Render(t.Context(), namesRequest(t,
			"  - {name: m, manifests: [app/]}\n  - {name: k, kustomize: {path: k}}\n", choices))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// Variables come before fields, and nothing is substituted twice.
func TestVariables(t *testing.T) {
	files := namesStack(`  - name: settings
    manifests: [settings/]
    variables: {zone: {expr: stack.zone}, count: {expr: stack.count}, fixed: "${zone}", n: "5"}
    fields: [{target: {kind: ConfigMap, name: settings-eu}, path: data.field, value: "'${zone}'", create: true}]
`)
	files["settings/all.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'settings-${zone}'}\n" +
		"data: {'key-${zone}': 'x ${count}', fixed: '${fixed}', def: '${gone:=default}', esc: '$${zone}', n: '${n}'}\n"
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Install: stacks.Identity{Namespace: "team", Name: "site"}}
	mustContain(t, manifests(t, req), `"data":{"def":"default","esc":"${zone}","field":"${zone}","fixed":"${zone}",`+
		`"key-eu":"x 2","n":"5"}`, `"name":"settings-eu"`)
	files["settings/all.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: '${zoen}'}\n"
	req.Root = writeTree(t, files)
	_, err := stacks.Render(t.Context(), req)
	if err == nil ||
		!strings.Contains(err.Error(), `settings/all.yaml:1: component "settings": ConfigMap "settings": data.a: `+
			`the variable "zoen" is not set`) || !strings.Contains(err.Error(), `did you mean "zone"?`) {
		t.Errorf("got %v", err)
	}
}

// A parameter that is not valid is one error, not one for each expression that reads it.
func TestExpressionsOfInvalidParameters(t *testing.T) {
	_, err := stacks.Render(t.Context(), namesRequest(t, `  - {name: a, manifests: [settings/], namespace: {expr: stack.zone}}
  - name: b
    manifests: [app/]
    fields: [{target: {kind: Deployment}, path: spec.replicas, value: stack.count + 1}]
`, stacks.Choices{Parameters: map[string]any{"zone": int64(5), "count": "x"}}))
	if err == nil || strings.Count(err.Error(), "\n") != 1 || strings.Contains(err.Error(), "component") {
		t.Errorf("got %v", err)
	}
}
