package stacks_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const generatedConfigMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: settings-}\ndata: {a: b}\n"

func renderRetain(t testing.TB, field string, files map[string]string) (stacks.Result, error) {
	t.Helper()
	files["stack.yaml"] = components("- name: run", "  manifests: [m/]", "  "+field)
	return stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Install:      stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}})
}

// A component with retain may give objects of every kind names by their content.
func TestRetainAllowsGenerateName(t *testing.T) {
	result, err := renderRetain(t, "retain: {last: 2}",
		map[string]string{"m/a.yaml": generatedConfigMap, "m/j.yaml": generatedJob})
	if err != nil {
		t.Fatal(err)
	}
	c := result.Components[0]
	if c.Retain == nil || *c.Retain != 2 || len(c.Objects) != 2 ||
		!strings.HasPrefix(c.Objects[0].Name, "settings-") || len(c.Objects[0].Name) != len("settings-")+10 {
		t.Errorf("got %s", asJSON(t, c))
	}
}

func TestRetainErrors(t *testing.T) {
	second := strings.Replace(generatedConfigMap, "a: b", "a: c", 1)
	for name, tc := range map[string]struct {
		field string
		files map[string]string
		want  string
	}{
		"without it, other kinds need a name": {"version: 1.0.0", map[string]string{"m/a.yaml": generatedConfigMap},
			`m/a.yaml:1: component "run": the ConfigMap uses metadata.generateName; set metadata.name instead`},
		"two objects of a kind": {"retain: {last: 1}",
			map[string]string{"m/a.yaml": generatedConfigMap, "m/b.yaml": second},
			`stack.yaml:9: component "run": field "retain" allows one object of each kind, but the component renders ` +
				`several of kind ConfigMap: ConfigMap "team/settings-`},
		"no number": {"retain: {}", map[string]string{"m/a.yaml": generatedConfigMap},
			`component "run": field "retain.last" is required`},
		"negative": {"retain: {last: -1}", map[string]string{"m/a.yaml": generatedConfigMap},
			`field "retain.last" must be between 0 and 100, not -1`},
		"too many": {"retain: {last: 101}", map[string]string{"m/a.yaml": generatedConfigMap},
			`field "retain.last" must be between 0 and 100, not 101`},
		"with preRemove": {"retain: {last: 1}\n    preRemove: true", map[string]string{"m/j.yaml": generatedJob},
			`field "retain" is set, and so is preRemove`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderRetain(t, tc.field, tc.files)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// The number may depend on parameters.
func TestRetainExpressions(t *testing.T) {
	const schema = "parameters: {schema: {properties: {last: {type: integer, default: 4}, any: {}}}}"
	for name, tc := range map[string]struct{ last, want string }{
		"a parameter":   {"{expr: params.last + 1}", "5"},
		"out of bounds": {"{expr: params.last * 26}", `field "retain.last" must be between 0 and 100, not 104`},
		"another type":  {"{expr: string(params.last)}", `field "retain.last" must return an integer, not string`},
		"a text":        {"five", `must be a whole number`},
		"empty":         {`{expr: ""}`, `field "retain.last" needs an expression in expr`},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := renderRetain(t, schema+"\n    retain: {last: "+tc.last+"}",
				map[string]string{"m/j.yaml": generatedJob})
			if err != nil && strings.Contains(err.Error(), tc.want) {
				return
			}
			if err != nil || strconv.Itoa(int(*result.Components[0].Retain)) != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}
