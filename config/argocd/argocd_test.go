// Package argocd_test runs the tests of the Argo CD customizations. The test files have the format
// of Argo CD's own resource_customizations.
package argocd_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/config/argocd/lua"
)

const folder = "resource_customizations"

// requestedAt matches the time that an action writes into an annotation. Argo CD's own tests
// replace it with a fixed time before they compare.
var requestedAt = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)

func loadYAML(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func loadObject(t *testing.T, path string) map[string]any {
	t.Helper()
	var out map[string]any
	loadYAML(t, path, &out)
	return out
}

// keys returns the keys of the shipped argocd-cm.
func keys(t *testing.T) map[string]string {
	t.Helper()
	var cm struct {
		APIVersion, Kind string
		Metadata         map[string]string
		Data             map[string]string
	}
	loadYAML(t, "component/argocd-cm.yaml", &cm)
	return cm.Data
}

// kinds returns the kinds that have a folder, as <group>/<kind>.
func kinds(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(folder + "/*/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%v, %v", dirs, err)
	}
	for i := range dirs {
		dirs[i] = strings.TrimPrefix(filepath.ToSlash(dirs[i]), folder+"/")
	}
	return dirs
}

// key returns the key in argocd-cm for a kind. script is health or actions.
func key(script, kind string) string {
	return "resource.customizations." + script + "." + strings.ReplaceAll(kind, "/", "_")
}

// checkAllUsed checks that every file in testdata is used in a test.
func checkAllUsed(t *testing.T, dir string, inputs map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(dir + "/testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !inputs["testdata/"+filepath.Base(f)] {
			t.Errorf("%s is not used in a test", f)
		}
	}
}

func TestHealth(t *testing.T) {
	for _, kind := range kinds(t) {
		dir, script := filepath.Join(folder, kind), keys(t)[key("health", kind)]
		var cases struct {
			Tests []struct {
				InputPath    string     `json:"inputPath"`
				HealthStatus lua.Health `json:"healthStatus"`
			} `json:"tests"`
		}
		loadYAML(t, dir+"/health_test.yaml", &cases)
		inputs, seen := map[string]bool{}, map[string]bool{}
		for _, tc := range cases.Tests {
			inputs[tc.InputPath], seen[tc.HealthStatus.Status] = true, true
			t.Run(kind+"/"+filepath.Base(tc.InputPath), func(t *testing.T) {
				got, err := lua.RunHealth(script, loadObject(t, filepath.Join(dir, tc.InputPath)))
				if err != nil || got != tc.HealthStatus {
					t.Errorf("%+v, %v; want %+v", got, err, tc.HealthStatus)
				}
			})
		}
		checkAllUsed(t, dir, inputs)
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got,
			[]string{"Degraded", "Healthy", "Progressing", "Suspended"}) {
			t.Errorf("%s: the tests only have the statuses %v", kind, got)
		}
	}
}

// actions is the value of a resource.customizations.actions key in argocd-cm.
type actions struct {
	Discovery   string `json:"discovery.lua"`
	Definitions []struct {
		Name   string `json:"name"`
		Script string `json:"action.lua"`
	} `json:"definitions"`
}

func (a *actions) script(t *testing.T, name string) string {
	t.Helper()
	for _, d := range a.Definitions {
		if d.Name == name {
			return d.Script
		}
	}
	t.Fatalf("action %q does not exist", name)
	return ""
}

type actionTests struct {
	Discovery []struct {
		InputPath string `json:"inputPath"`
		Result    []struct {
			Name     string `json:"name"`
			Disabled bool   `json:"disabled"`
		} `json:"result"`
	} `json:"discoveryTests"`
	Action []struct {
		Action             string `json:"action"`
		InputPath          string `json:"inputPath"`
		ExpectedOutputPath string `json:"expectedOutputPath"`
	} `json:"actionTests"`
}

func TestActions(t *testing.T) {
	for _, kind := range kinds(t) {
		dir := filepath.Join(folder, kind, "actions")
		var a actions
		if err := yaml.UnmarshalStrict([]byte(keys(t)[key("actions", kind)]), &a); err != nil {
			t.Fatal(err)
		}
		var cases actionTests
		loadYAML(t, dir+"/action_test.yaml", &cases)
		inputs, tried := map[string]bool{}, map[string]bool{}
		for _, tc := range cases.Discovery {
			inputs[tc.InputPath] = true
			t.Run(kind+"/discovery/"+filepath.Base(tc.InputPath), func(t *testing.T) {
				want := map[string]lua.Action{}
				for _, r := range tc.Result {
					want[r.Name] = lua.Action{Disabled: r.Disabled}
				}
				got, err := lua.RunDiscovery(a.Discovery, loadObject(t, filepath.Join(dir, tc.InputPath)))
				if err != nil || !reflect.DeepEqual(got, want) || len(got) != len(a.Definitions) {
					t.Errorf("%+v, %v; want %+v", got, err, want)
				}
			})
		}
		for _, tc := range cases.Action {
			inputs[tc.InputPath], inputs[tc.ExpectedOutputPath], tried[tc.Action] = true, true, true
			t.Run(kind+"/"+tc.Action+"/"+filepath.Base(tc.InputPath), func(t *testing.T) {
				got, err := lua.RunAction(a.script(t, tc.Action), loadObject(t, filepath.Join(dir, tc.InputPath)))
				if err != nil {
					t.Fatal(err)
				}
				if want := loadObject(t,
					filepath.Join(dir, tc.ExpectedOutputPath)); !reflect.DeepEqual(withFixedTime(t, got), want) {
					t.Errorf("%v\nwant %v", got, want)
				}
			})
		}
		checkAllUsed(t, dir, inputs)
		if len(tried) != len(a.Definitions) {
			t.Errorf("%s: only the actions %v are tested", kind, tried)
		}
	}
}

// withFixedTime replaces the time that an action wrote with the fixed time in the test data.
func withFixedTime(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	meta, _ := o["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	at, ok := annotations["reconcile.fluxcd.io/requestedAt"].(string)
	if !ok {
		return o
	}
	when, err := time.Parse(time.RFC3339, at)
	if err != nil || !requestedAt.MatchString(at) || time.Since(when).Abs() > time.Minute {
		t.Errorf("requested at %q: %v", at, err)
	}
	annotations["reconcile.fluxcd.io/requestedAt"] = "0001-01-01T00:00:00Z"
	return o
}

// Every reconciled kind has customizations, and all kinds have the same scripts.
func TestReconciledKindsHaveSameScripts(t *testing.T) {
	crds, err := filepath.Glob("../crd/bases/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatalf("%v, %v", crds, err)
	}
	var want []string
	for _, file := range crds {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Group string                `json:"group"`
				Names struct{ Kind string } `json:"names"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "lastHandledReconcileAt") {
			want = append(want, crd.Spec.Group+"/"+crd.Spec.Names.Kind)
		}
	}
	dirs, err := filepath.Glob(folder + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range dirs {
		got = append(got, strings.TrimPrefix(filepath.ToSlash(d), folder+"/"))
		for _, script := range []string{"health.lua", "actions/discovery.lua", "actions/reconcile/action.lua",
			"actions/suspend/action.lua", "actions/resume/action.lua"} {
			checkSameContent(t, filepath.Join(d, script), filepath.Join(dirs[0], script))
		}
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("kinds with customizations are %v, reconciled kinds are %v", got, want)
	}
}

func checkSameContent(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s differs from %s", a, b)
	}
}

// The component adds our keys to an existing argocd-cm, whether its manifest sets the namespace or
// not.
func TestComponentKeepsExistingKeys(t *testing.T) {
	for _, namespace := range []string{"", "  namespace: argocd\n"} {
		fs := filesys.MakeFsInMemory()
		for name, content := range map[string]string{
			"component/kustomization.yaml": read(t, "component/kustomization.yaml"),
			"component/argocd-cm.yaml":     read(t, "component/argocd-cm.yaml"),
			"site/kustomization.yaml":      "namespace: argocd\nresources: [argocd.yaml]\ncomponents: [../component]\n",
			"site/argocd.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n" +
				namespace + "data: {url: https://cd.example.com}\n",
		} {
			if err := fs.WriteFile(name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, "site")
		if err != nil {
			t.Fatal(err)
		}
		got := built.Resources()[0].GetDataMap()
		want := keys(t)
		want["url"] = "https://cd.example.com"
		if !maps.Equal(got, want) || built.Size() != 1 || built.Resources()[0].GetNamespace() != "argocd" {
			t.Errorf("%v", got)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
