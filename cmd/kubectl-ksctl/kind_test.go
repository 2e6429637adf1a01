package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/config/argocd"
	"github.com/ksctl/gitops/internal/kindclient"
)

func TestKindCRD(t *testing.T) {
	out := run(t, "kind", "crd", "testdata/kinds/shop")
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(out), &crd); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if crd.Name != "shops.shops.example.com" || len(crd.Spec.Versions) != 1 || len(crd.Annotations) > 0 ||
		strings.Contains(out, "creationTimestamp: null") || strings.Contains(out, "storedVersions") {
		t.Errorf("got\n%s", out)
	}
	if again := run(t, "kind", "crd", "testdata/kinds/shop/stack.yaml"); again != out {
		t.Errorf("the file of the stack: got\n%s", again)
	}
	dir, err := filepath.Abs("testdata/kinds/shop")
	if err != nil {
		t.Fatal(err)
	}
	if again := run(t, "kind", "crd", dir); again != out {
		t.Errorf("an absolute path: got\n%s", again)
	}
}

func TestKindOpenAPI(t *testing.T) {
	out := run(t, "kind", "openapi", "testdata/kinds/shop")
	for _, want := range []string{"openapi: 3.0.0\n", "    com.example.shops.v1alpha1.ShopList:\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwithout %s", out, want)
		}
	}
}

func TestKindArgoCD(t *testing.T) {
	out := run(t, "kind", "argocd", "testdata/kinds/shop", "../../internal/kindclient/testdata/gadget")
	var settings struct {
		APIVersion, Kind string
		Metadata, Data   map[string]string
	}
	if err := yaml.UnmarshalStrict([]byte(out), &settings); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if settings.Kind != "ConfigMap" || settings.Metadata["name"] != "argocd-cm" || len(settings.Data) != 2 {
		t.Errorf("got\n%s", out)
	}
	for _, kind := range []string{"Shop", "Gadget"} {
		if settings.Data["resource.customizations.health.shops.example.com_"+kind] != argocd.Health {
			t.Errorf("%s: got\n%s", kind, out)
		}
	}
}

func TestKindErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"crd", "testdata/kinds/plain"},
			"error: testdata/kinds/plain/stack.yaml:4: field \"spec.serves\" is missing: the stack serves no kind\n"},
		{[]string{"crd", "testdata/kinds/none"}, "error: stat testdata/kinds/none: no such file or directory\n"},
		{[]string{"openapi", "testdata/kinds"}, "error: testdata/kinds/stack.yaml: "},
		{[]string{"argocd"}, "error: requires at least 1 arg(s), only received 0\n"},
	} {
		if got := run(t, append([]string{"kind"}, tc.args...)...); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%v\ngot  %s\nwant %s", tc.args, got, tc.want)
		}
	}
}

// writeModule writes a go.mod to a folder.
func writeModule(t *testing.T, dir, requirement string) {
	t.Helper()
	content := "module example.com/app\n\ngo 1.26.0\n\nrequire k8s.io/client-go " + requirement + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKindClient(t *testing.T) {
	for requirement, generator := range map[string]string{"v0.30.0": kindclient.GeneratorVersion,
		"v0.999.1": "v0.999.1"} {
		dir := t.TempDir()
		writeModule(t, dir, requirement)
		folder := filepath.Join(dir, "clients", "shops")
		got := run(t, "kind", "client", "testdata/kinds/shop", folder)
		want := strings.Join([]string{filepath.Join(folder, "doc.go"), filepath.Join(folder, "v1alpha1/doc.go"),
			filepath.Join(folder, "v1alpha1/register.go"), filepath.Join(folder, "v1alpha1/types.go"), "",
			"To generate the clients, run in the Go module:", "  go mod tidy",
			"  go generate example.com/app/clients/shops", "  go mod tidy", ""}, "\n")
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		lines, err := os.ReadFile(filepath.Join(folder, "doc.go"))
		if err != nil || strings.Count(string(lines), "@"+generator+" ") != 4 {
			t.Errorf("want generators of %s in %s, %v", generator, lines, err)
		}
		if again := run(t, "kind", "client", "testdata/kinds/shop", folder); again != want {
			t.Errorf("the second time: got\n%s", again)
		}
	}
}

func TestKindClientKeepsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if got := run(t, "kind", "client", "testdata/kinds/shop", dir); !strings.Contains(got,
		"error: "+dir+" is in no Go module: run go mod init") {
		t.Error(got)
	}
	writeModule(t, dir, "v0.30.0")
	file := filepath.Join(dir, "v1alpha1", "types.go")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("package v1alpha1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "error: " + file + " exists, and kubectl ksctl kind client did not write it: use another folder\nexit 1\n"
	if got := run(t, "kind", "client", "testdata/kinds/shop", dir); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "doc.go")); err == nil {
		t.Error("other files are written")
	}
}
