package kindclient

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

var update = flag.Bool("update", false, "write the golden files")

func load(t *testing.T) *stacks.KindTemplate {
	t.Helper()
	k, err := stacks.LoadKindFile("testdata/gadget", stacks.FileName)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata/golden", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// e2e/kind generates the clients of these files, compiles them, and uses them.
func TestGoPackage(t *testing.T) {
	files, err := GoPackage(load(t), "example.com/app/gadgets", "v0.99.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		golden(t, name, content)
	}
	want := []string{"doc.go", "v1/doc.go", "v1/register.go", "v1/types.go", "v1alpha1/doc.go", "v1alpha1/register.go",
		"v1alpha1/types.go"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	again, err := GoPackage(load(t), "example.com/app/gadgets", "v0.99.0")
	if err != nil || !maps.EqualFunc(files, again, slices.Equal) {
		t.Errorf("the files differ from one run to the next: %v", err)
	}
}

func TestGoPackageRefusesNames(t *testing.T) {
	for _, tc := range []struct{ importPath, kind, want string }{
		{"example.com/app/my-gadgets", "Gadget", `can't have the name "my-gadgets": take one such as gadgets`},
		{"example.com/app/func", "Gadget", `can't have the name "func"`},
		{"example.com/app/gadgets", "Resource", "can't have a type with the name Resource"},
	} {
		k := load(t)
		k.Kind = tc.kind
		if _, err := GoPackage(k, tc.importPath, "v0.99.0"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %v, want %s", tc.importPath, tc.kind, err, tc.want)
		}
	}
}

// A spec that is no struct has no value without a pointer, or nil.
func TestGoPackageOfSpecWithoutFields(t *testing.T) {
	for _, tc := range []struct {
		schema map[string]any
		want   string
	}{
		{nil, "Spec GadgetSpec"},
		{map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"Spec *apiextensionsv1.JSON"},
		{map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "integer"}},
			"Spec map[string]int64"},
	} {
		k := load(t)
		k.Schema = tc.schema
		files, err := GoPackage(k, "example.com/app/gadgets", "v0.99.0")
		if err != nil {
			t.Fatal(err)
		}
		types := strings.Join(strings.Fields(string(files["v1/types.go"])), " ")
		if !strings.Contains(types, tc.want+" `json") {
			t.Errorf("want %s in:\n%s", tc.want, files["v1/types.go"])
		}
	}
}

func TestGoName(t *testing.T) {
	for field, want := range map[string]string{"replicas": "Replicas", "endpointURL": "EndpointURL", "podIp": "PodIP",
		"url": "URL", "image-pull.policy": "ImagePullPolicy", "HTTPProxy": "HTTPProxy", "type": "Type",
		"9lives": "X9lives", "": "X", "$": "X", "_": "X", "über": "Über", "名前": "X名前", "v1Beta1": "V1Beta1"} {
		if got := goName(field); got != want {
			t.Errorf("%q: got %s, want %s", field, got, want)
		}
	}
}

// e2e/kind compares the schemas with those of an API server.
func TestOpenAPI(t *testing.T) {
	document, err := OpenAPI(load(t))
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSONStrict(out)
	if err != nil {
		t.Fatal(err)
	}
	var parsed spec3.OpenAPI
	if err := json.Unmarshal(raw, &parsed); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"com.example.shops.v1.Gadget", "com.example.shops.v1.GadgetList",
		"com.example.shops.v1alpha1.Gadget", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} {
		if parsed.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	references := 0
	for line := range strings.Lines(string(out)) {
		if _, ref, found := strings.Cut(line, "$ref: '"+schemaPrefix); found {
			references++
			if name := strings.TrimSuffix(strings.TrimSpace(ref), "'"); parsed.Components.Schemas[name] == nil {
				t.Errorf("there is no schema %s", name)
			}
		}
	}
	if references == 0 {
		t.Error("the document has no references")
	}

	// The status of installs and the metadata are not ours.
	schemas := document["components"].(map[string]any)["schemas"].(map[string]any)
	maps.DeleteFunc(schemas, func(name string, s any) bool {
		if own := strings.HasPrefix(name, "com.example."); !own {
			return true
		}
		delete(s.(map[string]any)["properties"].(map[string]any), "status")
		return false
	})
	if out, err = yaml.Marshal(document); err != nil {
		t.Fatal(err)
	}
	golden(t, "openapi.yaml", out)
}

func TestGeneratorVersionFitsKubernetesLibraries(t *testing.T) {
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/client-go" && r.Mod.Version != GeneratorVersion {
			t.Errorf("GeneratorVersion is %s, but client-go has %s", GeneratorVersion, r.Mod.Version)
		}
	}
}
