package publish

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// object returns a rendered object; in is its namespace, more are additional metadata fields.
func object(kind, in, name string, more ...string) stacks.Object {
	m := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}
	if in != "" {
		m["metadata"].(map[string]any)["namespace"] = in
	}
	for _, field := range more {
		m["metadata"].(map[string]any)[field] = "x"
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return stacks.Object{Ref: stacks.Ref{Kind: kind, Namespace: in, Name: name}, Version: "v1", Manifest: b}
}

func withObject(o stacks.Object, change func(*stacks.Object)) stacks.Object {
	change(&o)
	return o
}

// content returns the files of a tree by path.
func content(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(tree, path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFiles(t *testing.T) {
	app := object("ConfigMap", "shop", "app")
	secret := object("Secret", "shop", "token")
	doc := func(kind, name string) string {
		return "---\napiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  namespace: shop\n"
	}
	for name, c := range map[string]struct {
		components []Component
		secrets    appsv1.PublishedSecrets
		want       map[string]string
	}{
		"one file per component, in their order": {
			components: []Component{{Name: "z", Objects: []stacks.Object{app, object("Service", "shop", "app")}},
				{Name: "a", Objects: []stacks.Object{object("ConfigMap", "shop", "other")}}},
			want: map[string]string{"kustomization.yaml": "components/z.yaml components/a.yaml",
				"components/z.yaml": doc("ConfigMap", "app") + doc("Service", "app"),
				"components/a.yaml": doc("ConfigMap", "other")},
		},
		"namespaces of components, without duplicates and first": {
			components: []Component{{Name: "a", Namespace: "shop", Objects: []stacks.Object{app}},
				{Name: "b", Namespace: "shop"}},
			want: map[string]string{"kustomization.yaml": "namespaces.yaml components/a.yaml",
				"namespaces.yaml":   "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n",
				"components/a.yaml": doc("ConfigMap", "app")},
		},
		"namespaces with names that YAML parses as other types": {
			components: []Component{{Name: "a", Namespace: "1e3"}, {Name: "b", Namespace: "2024-01-01"},
				{Name: "c", Namespace: "null"}},
			want: map[string]string{"kustomization.yaml": "namespaces.yaml",
				"namespaces.yaml": "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: " +
					"\"1e3\"\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: \"2024-01-01\"\n" +
					"---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: \"null\"\n"},
		},
		"with local config objects": {
			components: []Component{{Name: "a", Objects: []stacks.Object{withObject(app, func(o *stacks.Object) {
				o.Manifest = []byte(
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app","namespace":"shop","annotations":{"config.kubernetes.io/local-config":"true"}}}`)
			})}}},
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n" +
					"  annotations: {}\n  name: app\n  namespace: shop\n"},
		},
		"without server-side fields, and without namespace for an object without one": {
			components: []Component{{Name: "a", Objects: []stacks.Object{
				withObject(object("ConfigMap", "shop", "app", "uid", "resourceVersion", "managedFields"),
					func(o *stacks.Object) { o.Namespace = "" })}}},
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n"},
		},
		"without pre-remove hooks": {
			components: []Component{{Name: "a", Objects: []stacks.Object{app,
				withObject(object("Job", "shop", "last"), func(o *stacks.Object) {
					o.Hook = &stacks.Hook{Phase: stacks.HookPreRemove}
				})}}},
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": doc("ConfigMap", "app")},
		},
		"Secrets omitted": {
			components: []Component{{Name: "a", Objects: []stacks.Object{app, secret}},
				{Name: "b", Objects: []stacks.Object{secret}}},
			secrets: appsv1.SecretsOmit,
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": doc("ConfigMap", "app")},
		},
		"Secrets included": {
			components: []Component{{Name: "a", Objects: []stacks.Object{app, secret}}},
			secrets:    appsv1.SecretsInclude,
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": doc("ConfigMap", "app") + doc("Secret", "token")},
		},
		"kind Secret of another group": {
			components: []Component{{Name: "a", Objects: []stacks.Object{withObject(secret, func(o *stacks.Object) {
				o.Group = "example.com"
			})}}},
			want: map[string]string{"kustomization.yaml": "components/a.yaml",
				"components/a.yaml": doc("Secret", "token")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, err := Files(c.components, c.secrets)
			if err != nil {
				t.Fatal(err)
			}
			got := content(t, tree)
			if c.want[kustomizationFile] = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: " +
				"Kustomization\nresources:\n- " +
				strings.ReplaceAll(c.want[kustomizationFile], " ", "\n- ") + "\n"; !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			disk := filesys.MakeFsInMemory()
			for path, text := range got {
				if err := disk.WriteFile(path, []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "."); err != nil {
				t.Errorf("kustomize can't build it: %v", err)
			}
		})
	}
}

func TestFilesErrors(t *testing.T) {
	var many []stacks.Object
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		many = append(many, object("Secret", "shop", name))
	}
	for _, secrets := range []appsv1.PublishedSecrets{"", appsv1.SecretsRefuse} {
		_, err := Files([]Component{{Name: "a",
			Objects: append(slices.Clone(many), object("ConfigMap", "shop", "app"))}}, secrets)
		secretsErr, ok := errors.AsType[*SecretsError](err)
		if !ok || len(secretsErr.Rendered) != 7 ||
			!strings.Contains(err.Error(), "shop/a, shop/b, shop/c, shop/d, shop/e and 2 more") {
			t.Errorf("%q: got %v", secrets, err)
		}
	}
	if err := (&SecretsError{Decrypted: []string{"a.yaml"}}); !strings.Contains(err.Error(),
		"decrypted files (a.yaml)") || !strings.Contains(err.Error(), "to Include") {
		t.Errorf("got %v", err)
	}
	for name, components := range map[string][]Component{"no components": nil,
		"all objects omitted": {{Name: "a", Objects: many}}} {
		if _, err := Files(components, appsv1.SecretsOmit); !errors.Is(err, ErrEmpty) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
