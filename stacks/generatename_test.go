package stacks_test

import (
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const generatedJob = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: migrate-}\nspec: {template: {spec: " +
	"{restartPolicy: Never, containers: [{name: main, image: 'example.com/main:1', args: [a]}]}}}\n"

// jobName returns the name of the only object of a component.
func jobName(t testing.TB, component string, key []byte, choices stacks.Choices) string {
	t.Helper()
	root := writeTree(t, map[string]string{"job/j.yaml": generatedJob, "stack.yaml": stackHeader + `  parameters:
    schema:
      properties:
        args: {type: array, items: {type: string}, default: [a]}
        token: {type: string, default: x}
  components:
  - name: migrate
    manifests: [job/]
` + component})
	result := mustRender(t, stacks.Request{Root: root, Stack: "demo", Choices: choices, SecretKey: key,
		Install:      stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}})
	return result.Components[0].Objects[0].Name
}

// The name that generateName leads to depends on everything that is sent, and on nothing else.
func TestGenerateNameFollowsFinalContent(t *testing.T) {
	const first = "migrate-56fc3d5835" // stored: it must not change
	const field = "    fields:\n    - {target: {kind: Job}, path: 'spec.template.spec.containers.0.args', " +
		"value: stack.args}\n"
	key := []byte("key")
	for name, tc := range map[string]struct {
		component string
		choices   stacks.Choices
		want      string
	}{
		"unchanged":              {want: first},
		"field without a change": {component: field, want: first},
		"field": {component: field, want: "migrate-",
			choices: stacks.Choices{Parameters: map[string]any{"args": []any{"b"}}}},
		"patch": {want: "migrate-",
			component: "    patches: [{target: {kind: Job}, patch: {spec: {backoffLimit: 1}}}]\n"},
		"metadata": {component: "    commonMetadata: {labels: {a: b}}\n", want: "migrate-"},
		"image": {want: "migrate-",
			choices: stacks.Choices{Components: []stacks.ComponentChoice{{Name: "migrate", Override: map[string]any{
				"images": []any{map[string]any{"name": "example.com/main", "newTag": "2"}}}}}}},
		"prefix": {component: "    namePrefix: pre-\n    nameSuffix: -x\n", want: "pre-" + first + "-x"},
		"patched name": {want: "mine", component: "    patches: [{target: {kind: Job}, patch: [{op: replace, path: " +
			"/metadata/name, value: mine}]}]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := jobName(t, tc.component, key, tc.choices)
			switch {
			case tc.want != "migrate-" && got != tc.want:
				t.Errorf("the name is %q, want %q", got, tc.want)
			case tc.want == "migrate-" && (len(got) != len(first) || got == first):
				t.Errorf("the name is %q, want another one than for other content", got)
			}
		})
	}
}

// A published name does not disclose a value of a Secret: the hash in it is keyed.
func TestGenerateNameIsKeyed(t *testing.T) {
	files := secretStack("manifests", "    - {target: {kind: Secret}, path: data.password, value: stack.password}\n")
	files["manifests/j.yaml"] = generatedJob
	name := func(key, source string) (job string) {
		result := mustRender(t, stacks.Request{Root: writeTree(t, files), Stack: "demo", SecretKey: []byte(key),
			Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}, Choices: stacks.Choices{
				ParametersFrom: []stacks.ParametersInput{parametersFrom(source, "", "", "password", "a")}}})
		for _, o := range result.Components[0].Objects {
			if o.Kind == "Job" {
				job = o.Name
			}
		}
		return job
	}
	if one, two := name("one", "ConfigMap"), name("two", "ConfigMap"); one != two {
		t.Errorf("without a secret the name depends on the key: %s, %s", one, two)
	}
	if one, two := name("one", "Secret"), name("two", "Secret"); one == two {
		t.Errorf("with a secret the name %s does not depend on the key", one)
	}
}
