package stacks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func TestSelectFacts(t *testing.T) {
	cluster := map[string]any{"name": "prod", "labels": map[string]any{"env": "eu", "a.b": "c"},
		"facts": map[string]any{"region": "eu", "pools": []any{map[string]any{"count": int64(1)}}}}
	for paths, want := range map[string]string{
		`[]`: `null`, `[["name"]]`: `{"name":"prod"}`,
		`[["labels","env"],["name"]]`:          `{"labels":{"env":"eu"},"name":"prod"}`,
		`[["labels","a.b"],["labels","none"]]`: `{"labels":{"a.b":"c"}}`,
		`[["labels","none"]]`:                  `{"labels":{}}`,
		`[["none","x"],["name","x"]]`:          `null`,
		`[["facts","pools"]]`:                  `{"facts":{"pools":[{"count":1}]}}`,
		`[[]]`:                                 `{"facts":{"pools":[{"count":1}],"region":"eu"},"labels":{"a.b":"c","env":"eu"},"name":"prod"}`,
	} {
		var parsed [][]string
		if err := json.Unmarshal([]byte(paths), &parsed); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(stacks.SelectFacts(cluster, parsed).Values); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", paths, got, err, want)
		}
	}
}

// A render asks for the facts that the expressions read, and depends on those alone.
func TestClusterReachesEveryForm(t *testing.T) {
	const fields = `    - {target: {kind: ConfigMap}, path: data.greeting, value: "cluster.?labels.?env.orValue('none')"}
    - {target: {kind: Deployment}, path: spec.replicas, value: "cluster.facts.pools[0].count", when: has(cluster.facts)}
`
	cluster := map[string]any{"name": "prod", "labels": map[string]any{"env": "eu", "other": "x"},
		"facts": map[string]any{"region": "eu", "pools": []any{map[string]any{"count": int64(4)}}}}
	for form := range componentSources {
		req := stacks.Request{Root: writeTree(t, fieldsStack(componentSources[form], fields)), Stack: "demo",
			Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}, Cluster: &stacks.ClusterFacts{}}
		_, err := stacks.Render(t.Context(), req)
		missing, ok := errors.AsType[*stacks.MissingFactsError](err)
		if !ok || fmt.Sprint(missing.Paths) != "[[facts] [labels env]]" {
			t.Fatalf("%s: %v", form, err)
		}
		req.Cluster = stacks.SelectFacts(cluster, missing.Paths)
		result, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		raw, _ := json.Marshal(result.Components[0].Objects)
		for _, want := range []string{`"greeting":"eu"`, `"replicas":4`} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s: got %s, want %s", form, raw, want)
			}
		}
		cluster["labels"].(map[string]any)["other"] = form
		req.Cluster = stacks.SelectFacts(cluster, missing.Paths)
		if again, err := stacks.Digest(req); err != nil || again != result.Digest {
			t.Errorf("%s: another label changes the digest: %v", form, err)
		}
		req.Cluster = nil
		if result, err = stacks.Render(t.Context(), req); err != nil {
			t.Fatalf("%s without a cluster: %v", form, err)
		}
		if raw, _ = json.Marshal(result.Components[0].Objects); !strings.Contains(string(raw), `"greeting":"none"`) {
			t.Errorf("%s without a cluster: %s", form, raw)
		}
	}
}
