package stacks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ksctl/gitops/internal/testrun/layout"
	"github.com/ksctl/gitops/stacks"
)

// goodCases returns the names of the golden cases that render without an error.
func goodCases(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata/render")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "bad-") {
			out = append(out, e.Name())
		}
	}
	return out
}

func mustRender(t testing.TB, req stacks.Request) stacks.Result {
	t.Helper()
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A duplicate names the place of the first object, if that is another one.
func TestRenderReportsDuplicates(t *testing.T) {
	cm := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: ns}\n"
	for name, tc := range map[string]struct {
		components string
		want       string
	}{
		"one file, listed twice": {components("- {name: app, manifests: [a.yaml, a.yaml]}"),
			`a.yaml:1: component "app": ConfigMap "ns/x" is rendered twice from the same place: its file is listed twice, or its template repeats it`},
		"two files": {components("- {name: app, manifests: [a.yaml, b.yaml]}"),
			`b.yaml:1: component "app": ConfigMap "ns/x" is rendered twice; the first is in a.yaml:1`},
		"two components": {components("- {name: app, manifests: [a.yaml]}", "- {name: other, manifests: [a.yaml]}"),
			`a.yaml:1: component "other": ConfigMap "ns/x" is rendered twice; the first is in component "app", a.yaml:1`},
	} {
		t.Run(name, func(t *testing.T) {
			root := writeTree(t, map[string]string{"stack.yaml": tc.components, "a.yaml": cm, "b.yaml": cm})
			_, err := stacks.Render(t.Context(), stacks.Request{Root: root, Stack: "demo",
				Install:      stacks.Identity{Namespace: "ns", Name: "demo"},
				Capabilities: stacks.Capabilities{KubeVersion: "v1.36.0"}})
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestRenderIsDeterministic(t *testing.T) {
	renders := 20
	if os.Getenv(layout.LongVariable) != "" {
		renders = 100
	}
	for _, name := range goodCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := caseRequest(t, name)
			first := asJSON(t, mustRender(t, req))
			for i := range renders {
				if again := asJSON(t, mustRender(t, req)); again != first {
					t.Fatalf("render %d differs:\n%s\n%s", i, again, first)
				}
			}
		})
	}
}

// Concurrent renders of different stacks do not race and do not affect each other.
func TestRenderConcurrently(t *testing.T) {
	names := goodCases(t)
	want := map[string]string{}
	for _, name := range names {
		want[name] = asJSON(t, mustRender(t, caseRequest(t, name)))
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 3 * len(names) {
				name := names[(worker+i)%len(names)]
				result, err := stacks.Render(t.Context(), caseRequest(t, name))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if got := asJSON(t, result); got != want[name] {
					t.Errorf("%s differs when rendered concurrently", name)
				}
			}
		})
	}
	wg.Wait()
}

// A request renders the same after a JSON round trip, and a result survives one, too.
func TestRequestSurvivesJSON(t *testing.T) {
	for _, name := range goodCases(t) {
		req := caseRequest(t, name)
		var again stacks.Request
		if err := json.Unmarshal([]byte(asJSON(t, req)), &again); err != nil {
			t.Fatal(err)
		}
		result := mustRender(t, req)
		if asJSON(t, mustRender(t, again)) != asJSON(t, result) {
			t.Errorf("%s: differs after a round trip", name)
		}
		var back stacks.Result
		if err := json.Unmarshal([]byte(asJSON(t, result)), &back); err != nil {
			t.Fatal(err)
		}
		if asJSON(t, back) != asJSON(t, result) {
			t.Errorf("%s: the result differs after a round trip", name)
		}
	}
}

func TestDigestCoversEveryInput(t *testing.T) {
	base := caseRequest(t, "helm")
	first, err := stacks.Digest(base)
	if err != nil {
		t.Fatal(err)
	}
	no := false
	changes := map[string]func(*stacks.Request){
		"artifact":   func(r *stacks.Request) { r.Digest += "x" },
		"path":       func(r *stacks.Request) { r.Path += "x" },
		"stack":      func(r *stacks.Request) { r.Stack += "x" },
		"namespace":  func(r *stacks.Request) { r.Install.Namespace += "x" },
		"name":       func(r *stacks.Request) { r.Install.Name += "x" },
		"kubernetes": func(r *stacks.Request) { r.Capabilities.KubeVersion += "x" },
		"APIs": func(r *stacks.Request) {
			r.Capabilities.APIVersions = append(r.Capabilities.APIVersions, "x")
		},
		"key":          func(r *stacks.Request) { r.SecretKey = []byte("another") },
		"parameters":   func(r *stacks.Request) { r.Choices.Parameters = map[string]any{"a": 1} },
		"values":       func(r *stacks.Request) { r.Choices.Values[0].Data = []byte("replicas: 3\n") },
		"target":       func(r *stacks.Request) { r.Choices.TargetNamespace = "x" },
		"strict":       func(r *stacks.Request) { r.Choices.Strict = true },
		"stackVersion": func(r *stacks.Request) { r.Choices.StackVersion = "x" },
		"version":      func(r *stacks.Request) { r.Choices.Components[0].Version = "x" },
		"enabled":      func(r *stacks.Request) { r.Choices.Components[0].Enabled = &no },
		"override":     func(r *stacks.Request) { r.Choices.Components[0].Override["x"] = 1 },
		"keys":         func(r *stacks.Request) { r.DecryptionKeyID = "x" },
	}
	seen := map[string]string{first: "nothing"}
	for name, change := range changes {
		req := caseRequest(t, "helm")
		change(&req)
		digest, err := stacks.Digest(req)
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[digest]; twice {
			t.Errorf("changing %s gives the digest of changing %s", name, other)
		}
		seen[digest] = name
	}
	base.Root = "/elsewhere"
	if digest, _ := stacks.Digest(base); digest != first {
		t.Error("the folder of the artifact changes the digest")
	}
}

func findObject(t *testing.T, result stacks.Result, kind, name string) stacks.Object {
	t.Helper()
	for _, c := range result.Components {
		for _, o := range c.Objects {
			if o.Kind == kind && o.Name == name {
				return o
			}
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return stacks.Object{}
}

// Random values of a chart are specific to the install, and depend on the secret key.
func TestRandomFunctionsAreSeeded(t *testing.T) {
	req := caseRequest(t, "helm")
	secret := func() string { return string(findObject(t, mustRender(t, req), "Secret", "shop-password").Manifest) }
	first := secret()
	req.Digest = "sha256:another-commit"
	if secret() != first {
		t.Error("another commit with the same chart changes the random value")
	}
	req.Install.Name = "other"
	if secret() == first {
		t.Error("another install has the same random value")
	}
	req.Install.Name = "site"
	req.SecretKey = []byte("another")
	if secret() == first {
		t.Error("another key has the same random value")
	}
}

func TestContentHashesAreKeyedForSecrets(t *testing.T) {
	req := caseRequest(t, "helm")
	before := mustRender(t, req)
	req.SecretKey = []byte("another")
	req.Choices.Values = nil
	after := mustRender(t, req)
	for _, c := range before.Components {
		for _, o := range c.Objects {
			if len(o.Hash) != 16 {
				t.Errorf("%s %s: hash %q", o.Kind, o.Name, o.Hash)
			}
		}
	}
	same := func(kind, name string) bool {
		return findObject(t, before, kind, name).Hash == findObject(t, after, kind, name).Hash
	}
	if same("Secret", "shop-password") {
		t.Error("the hash of a Secret must depend on the key")
	}
	if !same("Job", "migrate") || same("ConfigMap", "shop-cache") {
		t.Error("the hash of other objects must depend only on their content")
	}
	plain := writeTree(t, map[string]string{"stack.yaml": components("- {name: a, manifests: [a.yaml]}"),
		"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: v}\n"})
	hash := func(key string) string {
		return findObject(t, mustRender(t, stacks.Request{Root: plain, Stack: "demo", SecretKey: []byte(key)}),
			"Secret", "a").Hash
	}
	if one, again := hash("one"), hash("one"); one == hash("two") || one != again {
		t.Error("the hash of the same Secret must depend only on the key")
	}
}

func TestRenderStopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range goodCases(t) {
		_, err := stacks.Render(ctx, caseRequest(t, name))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestObjectsHaveNamespacesWavesAndHooks(t *testing.T) {
	result := mustRender(t, caseRequest(t, "manifests"))
	for _, tt := range []struct {
		kind, name, namespace string
		defaulted             bool
	}{
		{"ConfigMap", "one", "site", true},
		{"ConfigMap", "two", "elsewhere", false},
		{"ClusterRole", "reader", "", false},
		{"Minimart", "corner", "", false},
		{"Unknown", "thing", "team", true},
	} {
		o := findObject(t, result, tt.kind, tt.name)
		if o.Namespace != tt.namespace || o.NamespaceDefaulted != tt.defaulted {
			t.Errorf("%s %s: namespace %q, defaulted %v", tt.kind, tt.name, o.Namespace, o.NamespaceDefaulted)
		}
		if bytes.Contains(o.Manifest, []byte(`"namespace":"`)) != (tt.namespace != "") {
			t.Errorf("%s %s: %s", tt.kind, tt.name, o.Manifest)
		}
	}
	if c := result.Components[2]; c.Wave != 1 || c.Name != "app" {
		t.Errorf("the last component is %s in wave %d", c.Name, c.Wave)
	}
	hooks := mustRender(t, caseRequest(t, "helm"))
	migrate := findObject(t, hooks, "Job", "migrate")
	if h := migrate.Hook; h == nil || h.Phase != stacks.HookPre || h.Weight != 5 ||
		strings.Join(h.DeletePolicies, " ") != "hook-succeeded before-hook-creation" {
		t.Errorf("hook of migrate: %+v", migrate.Hook)
	}
	if h := findObject(t, hooks, "Job", "seed").Hook; h == nil || h.Phase != stacks.HookPost ||
		h.DeletePolicies[0] != "before-hook-creation" {
		t.Errorf("hook of seed: %+v", h)
	}
}

// A namespace that the stack renders itself is not created separately. The component that uses it
// must depend on the component that renders it.
func TestCreateNamespaceUnlessTheStackRendersIt(t *testing.T) {
	for _, tt := range []struct{ own, depends, want string }{
		{"", "", "site"},
		{"a", "", ""},
		{"b", "dependsOn: [b], ", ""},
		{"c", "dependsOn: [b], ", ""},
		{"b", "", "error"},
	} {
		files := map[string]string{"a.yaml": configMap, "b.yaml": strings.Replace(configMap, "name: a", "name: b", 1),
			"c.yaml": strings.Replace(configMap, "name: a", "name: c", 1)}
		if tt.own != "" {
			files[tt.own+".yaml"] += "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: site}\n"
		}
		files["stack.yaml"] = components("- {name: a, "+tt.depends+"namespace: site, createNamespace: true, "+
			"manifests: [a.yaml]}", "- {name: b, dependsOn: [c], manifests: [b.yaml]}",
			"- {name: c, manifests: [c.yaml]}")
		result, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo"})
		if tt.want == "error" {
			if err == nil ||
				!strings.Contains(err.Error(),
					`stack.yaml: component "a": the namespace "site" is rendered by component "b"; add that component to dependsOn`) {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		for _, c := range result.Components {
			if c.Name == "a" && c.CreateNamespace != tt.want {
				t.Errorf("%+v: got %q", tt, c.CreateNamespace)
			}
		}
	}
}

// Patches preserve the origin of an object, its hook and NamespaceDefaulted.
func TestOverridesPreserveOriginAndHook(t *testing.T) {
	req := caseRequest(t, "helm")
	before := mustRender(t, req)
	req.Choices.Components[0].Override["patches"] = []any{map[string]any{
		"target": map[string]any{"kind": "Job|Deployment"},
		"patch":  `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`,
	}}
	after := mustRender(t, req)
	for i, o := range after.Components[0].Objects {
		was := before.Components[0].Objects[i]
		if asJSON(t, was.Hook) != asJSON(t, o.Hook) || was.File != o.File || was.Line != o.Line ||
			was.NamespaceDefaulted != o.NamespaceDefaulted || was.Ref != o.Ref {
			t.Errorf("%+v became %+v", was, o)
		}
		touched := o.Kind == "Job" || o.Kind == "Deployment"
		if touched == (string(was.Manifest) == string(o.Manifest)) {
			t.Errorf("%s %s: %s", o.Kind, o.Name, o.Manifest)
		}
	}
}
