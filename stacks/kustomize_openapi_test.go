package stacks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// containerSchema is a schema in which containers have the merge key image. In the schema of
// Kubernetes, it is name.
const containerSchema = `{"definitions": {"Deployment": {"type": "object",
  "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Deployment", "version": "v1"}],
  "properties": {"spec": {"type": "object", "properties": {"template": {"type": "object", "properties": {
    "spec": {"type": "object", "properties": {"containers": {"type": "array", "items": {"type": "object"},
      "x-kubernetes-patch-merge-key": "image", "x-kubernetes-patch-strategy": "merge"}}}}}}}}}}}
`

// renderPatched renders a Deployment with a patch of a container, with more fields of the
// kustomization.
func renderPatched(t *testing.T, more string) (string, error) {
	t.Helper()
	result, err := renderKustomization(t, map[string]string{
		"k/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: p.yaml}]\n" + more, "k/web.yaml": web,
		"k/schema.json": containerSchema, "k/invalid.json": `{"definitions": []}`,
		"k/kind.json": `{"definitions": {"a": {"x-kubernetes-group-version-kind": [{"kind": "Deployment"}]}}}`,
		"k/p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {template: {spec: {containers: [{name: renamed, image: 'side:1'}]}}}\n",
	}, nil)
	if err != nil {
		return "", err
	}
	return string(findObject(t, result, "Deployment", "web").Manifest), nil
}

// A build with its own OpenAPI schema never changes how another one merges, also if both run at the
// same time, or if it fails.
func TestKustomizeOpenAPIDoesNotLeak(t *testing.T) {
	const own = "openapi: {path: schema.json}\n"
	// With the schema of Kubernetes, the patch adds a container. With the own one, it renames one.
	wants := map[string]string{"": `"name":"side"`, own: `"name":"renamed"`,
		"openapi: {version: v1.21.2}\n": `"name":"side"`}
	check := func(more string) error {
		got, err := renderPatched(t, more)
		if err != nil {
			return fmt.Errorf("%q: %w", more, err)
		}
		if !strings.Contains(got, wants[more]) || more == own && strings.Contains(got, `"name":"side"`) {
			return fmt.Errorf("%q: got %s", more, got)
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 4 {
		for more := range wants {
			wg.Go(func() {
				if err := check(more); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if _, err := renderPatched(t, "openapi: {path: invalid.json}\n"); err == nil {
				t.Error("an invalid schema is accepted")
			}
		})
	}
	wg.Wait()
	for _, more := range []string{own, ""} {
		if err := check(more); err != nil {
			t.Error(err)
		}
	}
}

// Schemas that kustomize cannot use are rejected with the file.
func TestKustomizeRejectsInvalidOpenAPI(t *testing.T) {
	for more, want := range map[string]string{
		"openapi: {path: invalid.json}\n": `k/invalid.json: component "app": kustomize cannot use this OpenAPI schema: `,
		"openapi: {path: kind.json}\n":    `k/kind.json: component "app": kustomize cannot use this OpenAPI schema: `,
		"openapi: {path: none.json}\n": `k/kustomization.yaml:3: component "app": field "openapi.path": ` +
			`there is no "none.json" in the source`,
		"openapi: {path: ../stack.yaml}\n": `k/kustomization.yaml:3: component "app": field "openapi.path": ` +
			`"../stack.yaml" is outside the folder of its kustomization; move it there`,
		"openapi: {path: /etc/schema.json}\n": `k/kustomization.yaml:3: component "app": field "openapi.path": ` +
			`the path "/etc/schema.json" is absolute; it must be relative`,
		"openapi: {path: 'https://example.com/x'}\n": `k/kustomization.yaml:3: component "app": field ` +
			`"openapi.path": "https://example.com/x" is remote`,
		"openapi:\n  version: v1.20.4\n": `k/kustomization.yaml:4: component "app": field "openapi.version": ` +
			`kustomize has no schema of "v1.20.4"; set "v1.21.2", or a path to a schema in the source`,
		"openapi: {version: v1.21.2, path: schema.json}\n": `k/kustomization.yaml: component "app": the ` +
			`kustomization cannot be built: builtin version and custom schema provided, cannot use both`,
	} {
		if _, err := renderPatched(t, more); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s got %v\nwant %s", more, err, want)
		}
	}
}
