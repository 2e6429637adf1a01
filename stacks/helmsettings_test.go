package stacks_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

const (
	hookJob = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %EVENT%, annotations: {helm.sh/hook: %EVENT%}}\n" +
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: main:1}]}}}\n"
	widgets = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
		"metadata: {name: widgets.example.com}\nspec: {group: example.com, scope: Namespaced, " +
		"names: {kind: Widget, plural: widgets}, versions: [{name: v1, " +
		"served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
)

// chartWithAll returns a chart with a CRD, an object, hooks of all kinds and a schema.
func chartWithAll() map[string]string {
	files := map[string]string{
		"chart/Chart.yaml":         "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml":        "size: 1\n",
		"chart/values.schema.json": `{"properties": {"size": {"type": "integer"}}}`,
		"chart/crds/widgets.yaml":  widgets,
		"chart/templates/a.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n",
	}
	for _, event := range []string{"pre-install", "post-upgrade", "pre-delete", "test"} {
		files["chart/templates/"+event+".yaml"] = strings.ReplaceAll(hookJob, "%EVENT%", event)
	}
	return files
}

// renderSettings renders a chart with the settings of the stack and of the install.
func renderSettings(t *testing.T, helm string, choice stacks.ComponentChoice) (stacks.Result, error) {
	t.Helper()
	files := chartWithAll()
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart" + helm + "}}")
	choice.Name = "shop"
	return stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
		Generate:     generated.Options{Policy: generated.Keep, Owner: "x"},
		Releases:     map[string]stacks.ReleaseRecord{},
		Choices:      stacks.Choices{Components: []stacks.ComponentChoice{choice}}})
}

func TestHelmSettings(t *testing.T) {
	const all = "ConfigMap/shop CustomResourceDefinition/widgets.example.com Job/post-upgrade Job/pre-install " +
		"Secret/generated test:test"
	const withoutHooks = "ConfigMap/shop CustomResourceDefinition/widgets.example.com"
	for name, tc := range map[string]struct {
		helm       string
		choice     stacks.ComponentChoice
		want       string
		createOnly bool
	}{
		"the defaults":         {want: all},
		"the defaults by name": {helm: ", crds: Apply, hooks: Run, skipSchemaValidation: false", want: all},
		"crds CreateOnly":      {helm: ", crds: CreateOnly", want: all, createOnly: true},
		"crds Skip": {helm: ", crds: Skip",
			want: strings.Replace(all, "CustomResourceDefinition/widgets.example.com ", "", 1)},
		"hooks Skip": {helm: ", hooks: Skip", want: withoutHooks},
		"the install creates only": {choice: stacks.ComponentChoice{CRDs: appsv1.CRDsCreateOnly}, want: all,
			createOnly: true},
		"the install skips hooks": {choice: stacks.ComponentChoice{Hooks: appsv1.HooksSkip}, want: withoutHooks},
		"the install overrides the stack": {helm: ", crds: Skip, hooks: Skip", want: all,
			choice: stacks.ComponentChoice{CRDs: appsv1.CRDsApply, Hooks: appsv1.HooksRun}},
		"the install names the release": {helm: ", releaseName: one, hooks: Skip", want: strings.Replace(withoutHooks,
			"ConfigMap/shop", "ConfigMap/two", 1), choice: stacks.ComponentChoice{ReleaseName: "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := renderSettings(t, tc.helm, tc.choice)
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Warnings) > 0 {
				t.Errorf("warnings %q", result.Warnings)
			}
			c := result.Components[0]
			var got []string
			for _, o := range c.Objects {
				if o.Generated {
					o.Name = "generated" // the record of the release, and the hooks of a removal
				}
				got = append(got, o.Kind+"/"+o.Name)
				if isCRD := o.Kind == "CustomResourceDefinition"; o.CreateOnly != (isCRD && tc.createOnly) {
					t.Errorf("%s is created only: %t", o.Name, o.CreateOnly)
				}
			}
			for _, o := range c.Tests {
				got = append(got, "test:"+o.Name)
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
			stored := result.Generated["shop"]
			if keeps := stored != nil && stored.Hooks != nil; keeps != strings.Contains(tc.want, "test") {
				t.Errorf("hooks of a removal: %v", stored)
			}
			if want := "shop"; tc.choice.ReleaseName == "" && c.Release.Name != want || tc.choice.ReleaseName != "" &&
				c.Release.Name != tc.choice.ReleaseName {
				t.Errorf("release %s", c.Release.Name)
			}
		})
	}
}

func TestSkipSchemaValidation(t *testing.T) {
	wrong := map[string]any{"values": map[string]any{"size": "large"}}
	for name, tc := range map[string]struct {
		helm   string
		skip   *bool
		checks bool
	}{
		"by default":               {checks: true},
		"in the stack":             {helm: ", skipSchemaValidation: true"},
		"in the install":           {skip: ptr.To(true)},
		"the install checks again": {helm: ", skipSchemaValidation: true", skip: ptr.To(false), checks: true},
	} {
		_, err := renderSettings(t, tc.helm, stacks.ComponentChoice{SkipSchemaValidation: tc.skip, Override: wrong})
		if (err != nil) != tc.checks || err != nil && !strings.Contains(err.Error(), `"values.size"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHelmSettingsAreRefused(t *testing.T) {
	everything := stacks.ComponentChoice{ReleaseName: "x", CRDs: appsv1.CRDsSkip, Hooks: appsv1.HooksSkip,
		SkipSchemaValidation: ptr.To(false)}
	for name, tc := range map[string]struct {
		stack  string
		choice stacks.ComponentChoice
		want   []string
	}{
		"unknown policies in the stack": {stack: "- {name: shop, helm: {chart: chart, crds: Replace, hooks: skip}}",
			want: []string{`stack.yaml:7: component "shop": field "helm.crds" must be Apply, CreateOnly or Skip, ` +
				`not "Replace"`, `field "helm.hooks" must be Run or Skip, not "skip"`}},
		"unknown policies in the install": {stack: "- {name: shop, helm: {chart: chart}}",
			choice: stacks.ComponentChoice{CRDs: "Replace", Hooks: "skip"},
			want: []string{`component "shop": crds must be Apply, CreateOnly or Skip, not "Replace"`,
				`hooks must be Run or Skip, not "skip"`}},
		"a component without a chart": {stack: "- {name: shop, manifests: [a.yaml]}", choice: everything,
			want: []string{`component "shop": releaseName is set, but this component is not a Helm chart`,
				"crds is set, but", "hooks is set, but", "skipSchemaValidation is set, but"}},
		"an invalid release name": {stack: "- {name: shop, helm: {chart: chart}}",
			choice: stacks.ComponentChoice{ReleaseName: "Shop_1"},
			want:   []string{`releaseName must be a DNS name of at most 53 characters, not "Shop_1"`}},
		"the release of another component": {
			stack:  "- {name: shop, helm: {chart: chart}}\n  - {name: shop2, helm: {chart: chart, releaseName: shop3}}",
			choice: stacks.ComponentChoice{ReleaseName: "shop3"},
			want: []string{`component "shop2": its release shop3 in namespace default is that of component "shop", too; ` +
				"set another releaseName or namespace for one of the two"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := chartWithAll()
			files["stack.yaml"], files["a.yaml"] = components(tc.stack), configMap
			tc.choice.Name = "shop"
			_, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
				Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
				Choices:      stacks.Choices{Components: []stacks.ComponentChoice{tc.choice}}})
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// Components in different namespaces may have releases of the same name.
func TestReleasesOfOneNameInTwoNamespaces(t *testing.T) {
	files := chartWithAll()
	delete(files, "chart/crds/widgets.yaml")
	files["stack.yaml"] = components("- {name: a, namespace: one, helm: {chart: chart, releaseName: shop}}",
		"- {name: b, namespace: two, helm: {chart: chart, releaseName: shop}}")
	result, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}})
	if err != nil || len(result.Components) != 2 {
		t.Errorf("%v %v", result.Components, err)
	}
}
