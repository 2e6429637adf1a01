package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// convertedFolder returns a copy of the repository of package convert with plain folders.
func convertedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../stacks/convert/testdata/tenants")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConvert(t *testing.T) {
	dir := convertedFolder(t)
	args := []string{"convert", "-f", filepath.Join(dir, "clusters"), "-f",
		"../../stacks/convert/testdata/tenants-values.yaml", "--repository", dir, "--source",
		"GitRepository tenants/tenants"}
	got := run(t, append(args, "--dry-run")...)
	golden(t, "convert.txt", got)
	if _, err := os.Stat(filepath.Join(dir, "stacks")); err == nil {
		t.Error("--dry-run has written")
	}
	if written := run(t, args...); written != strings.Replace(got, "To be written", "Written", 1) {
		t.Errorf("without --dry-run, the command prints something else:\n%s", written)
	}
	if got := run(t, "validate", dir); !strings.HasSuffix(got, ": ok\n") {
		t.Errorf("what was written is not valid:\n%s", got)
	}
	if got := run(t, args...); !strings.Contains(got, "stacks/backend-production-2/stack.yaml") {
		t.Errorf("a second run has replaced the first one:\n%s", got)
	}
}

func TestConvertErrors(t *testing.T) {
	dir := convertedFolder(t)
	for want, args := range map[string][]string{
		"at least one of the flags in the group [filename from-cluster] is required": {"convert"},
		"name those that are this repository with --source": {"convert", "-f", filepath.Join(dir, "clusters"),
			"--repository", dir},
		"no such file or directory":       {"convert", "-f", filepath.Join(dir, "nowhere")},
		"--secret x: name/key=file is ex": {"convert", "-f", dir, "--secret", "x"},
	} {
		if got := run(t, args...); !strings.Contains(got, want) {
			t.Errorf("%v: got %s", args, got)
		}
	}
}

// The values of HelmReleases are read, too, and kinds that the cluster does not serve are skipped.
func TestReadObjectsOfCluster(t *testing.T) {
	object := func(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: more}
		if more == nil {
			u.Object = map[string]any{}
		}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	release := object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "shop", "cache", map[string]any{
		"spec": map[string]any{"valuesFrom": []any{map[string]any{"kind": "Secret", "name": "password"},
			map[string]any{"kind": "ConfigMap", "name": "gone"}}}})
	kustomization := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "shop", "web", map[string]any{
		"spec": map[string]any{"postBuild": map[string]any{"substituteFrom": []any{
			map[string]any{"kind": "ConfigMap", "name": "settings"}}}}})
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(release, kustomization,
		object("v1", "ConfigMap", "shop", "settings", nil),
		object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "other", "cache", nil),
		object("source.toolkit.fluxcd.io/v1", "HelmRepository", "flux-system", "charts", nil),
		object("v1", "Secret", "shop", "password", nil), object("v1", "Secret", "shop", "unrelated", nil)).Build()
	objects, err := readObjects(t.Context(), c, "shop")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		u := unstructured.Unstructured{Object: o.Value}
		got = append(got, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
	}
	want := "Kustomization shop/web, ConfigMap shop/settings, HelmRelease shop/cache, " +
		"Secret shop/password, HelmRepository flux-system/charts"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %v", got)
	}
}
