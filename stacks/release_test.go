package stacks_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goldenfile "github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// releaseRequest returns a request for a chart whose ConfigMap has a value and the release.
func releaseRequest(t *testing.T, value string) stacks.Request {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: shop}\nspec:\n  version: " +
			"1.0.0\n" +
			"  components:\n  - {name: web, helm: {chart: ./chart, values: {value: " + value + "}}}\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"chart/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata:\n" +
			"  value: {{ .Values.value }}\n  release: \"{{ .Release.IsInstall }} {{ .Release.Revision }}\"\n" +
			"  {{- if .Release.IsInstall }}\n  \"first/only\": yes\n  {{- end }}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return stacks.Request{Root: root, Digest: "sha256:" + value, Stack: "shop",
		Install: stacks.Identity{Namespace: "prod", Name: "shop"}, SecretKey: []byte("key"),
		Generate: generated.Options{Policy: generated.Keep}, Releases: map[string]stacks.ReleaseRecord{},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}}
}

// TestReleases renders one request after the other, with the records that the last result returned.
func TestReleases(t *testing.T) {
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{
		Render: func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
			renders++
			return stacks.Render(ctx, req)
		}})
	releases, generate := map[string]stacks.ReleaseRecord{}, generated.Options{Policy: generated.Keep}
	complete := func() {
		record := releases["web"]
		record.Complete = true
		releases["web"] = record
	}
	for i, step := range []struct {
		value    string
		complete bool
		release  string
		revision int
		initial  []string
		renders  int
	}{
		{"a", false, "true 1", 1, []string{"/data/first~1only"}, 1},
		{"a", false, "true 1", 1, []string{"/data/first~1only"}, 1},
		{"b", false, "true 1", 1, []string{"/data/first~1only"}, 2}, // the install is not complete
		{"b", true, "true 1", 1, []string{"/data/first~1only"}, 2},
		{"c", false, "false 2", 2, nil, 3},
		{"d", false, "false 3", 3, nil, 4}, // the upgrade is not complete
		{"d", true, "false 3", 3, nil, 4},
		{"c", true, "false 4", 4, nil, 5},
	} {
		if step.complete {
			complete()
		}
		req := releaseRequest(t, step.value)
		req.Releases, req.Generate = releases, generate
		result, err := r.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		releases, generate = result.NextReleases(req.Releases), generate.With(result.Generated)
		object := result.Components[0].Objects[len(result.Components[0].Objects)-1]
		if !strings.Contains(string(object.Manifest), `"release":"`+step.release+`"`) ||
			releases["web"].Revision != step.revision || !slices.Equal(object.InitialFields, step.initial) ||
			renders != step.renders {
			t.Errorf("step %d: revision %d, initial %v, %d renders: %s", i, releases["web"].Revision,
				object.InitialFields,
				renders, object.Manifest)
		}
	}

	t.Run("the Secret has the record", func(t *testing.T) {
		if got := generate.Values["web"].Release; got == nil || got.Revision != 4 {
			t.Fatalf("got %+v", got)
		}
		for value, want := range map[string]stacks.ReleaseRecord{"c": {Revision: 4, Complete: true},
			"d": {Revision: 5}} {
			req := releaseRequest(t, value)
			req.Generate = generate
			result, err := stacks.Render(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Components[0].Record; got.Revision != want.Revision || got.Complete != want.Complete {
				t.Errorf("value %s: got %+v, want %+v", value, got, want)
			}
		}
	})

	t.Run("a release of Helm is taken over", func(t *testing.T) {
		for value, want := range map[string]stacks.ReleaseRecord{"a": {Revision: 7, Complete: true},
			"b": {Revision: 8}} {
			req := releaseRequest(t, value)
			req.Releases["web"] = stacks.ReleaseRecord{Revision: 7, Complete: true,
				Helm: &stacks.HelmRelease{Chart: "web", Version: "1.0.0", Values: map[string]any{"value": "a"}}}
			result, err := stacks.Render(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Components[0].Record; got.Revision != want.Revision || got.Complete != want.Complete ||
				got.Helm != nil {
				t.Errorf("value %s: got %+v, want %+v", value, got, want)
			}
		}
	})
}

// TestGoldenReleaseDigest fails if the digest of what has not changed does: each install would be
// upgraded, with its hooks.
func TestGoldenReleaseDigest(t *testing.T) {
	req := releaseRequest(t, "a")
	req.Choices.Components = []stacks.ComponentChoice{{Name: "web", Override: map[string]any{
		"values":  map[string]any{"more": int64(1)},
		"patches": []any{map[string]any{"target": map[string]any{"kind": "ConfigMap"}, "patch": `[{"op":"add","path":"/data/patched","value":"x"}]`}}}}}
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	goldenfile.Equal(t, "release-digest.txt", []byte(result.Components[0].Record.Digest+"\n"))
}
