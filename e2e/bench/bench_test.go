package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/cluster"
)

func TestEveryScenarioHasALayoutAndATitle(t *testing.T) {
	for _, sc := range scenarios {
		if titles()[sc.name] == "" || len(sc.installs) == 0 {
			t.Errorf("%s has no title, or no number of installs", sc.name)
		}
		sites, src := sc.layout(options{objects: 10}, 40)
		seen := map[types.NamespacedName]bool{}
		for i, key := range keys(sites) {
			if _, ok := src[sites[i].Folder]; !ok {
				t.Errorf("%s: %s wants the folder %s, which is not there", sc.name, key, sites[i].Folder)
			}
			if seen[key] {
				t.Errorf("%s: two installs are called %s", sc.name, key)
			}
			seen[key] = true
		}
	}
	for _, m := range report.Marks {
		if titles()[m.Scenario] == "" {
			t.Errorf("a mark is of %s, which is no scenario", m.Scenario)
		}
	}
}

func TestLayouts(t *testing.T) {
	if sites, _ := healthy(options{}, 200); len(sites) != 190 {
		t.Errorf("%d are healthy", len(sites))
	}
	sites, src := partlySick(options{}, 200)
	if ill := len(sites) - len(slices.DeleteFunc(slices.Clone(sites), func(s site) bool { return s.Folder == "sick" })); ill != 10 || src["sick"].fate == "" {
		t.Errorf("%d are never ready, with the fate %q", ill, src["sick"].fate)
	}
	sites, _ = pairs(options{}, 5)
	if sites[0].DependsOn != nil || sites[1].DependsOn != &sites[0] || sites[3].DependsOn != &sites[2] || sites[4].DependsOn != nil {
		t.Errorf("pairs: %+v", sites)
	}
}

func TestTreeHoldsWhatTheFloorSends(t *testing.T) {
	_, src := together(options{}, 2)
	src["chart"] = content{name: "x", value: "1", chart: true}
	var files []string
	err := fs.WalkDir(src.tree(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"stacks/app-0001/stack.yaml", "stacks/app-0001/main/4-deployment.yaml", "stacks/chart/chart/Chart.yaml", "stacks/chart/chart/templates/c26.yaml"} {
		if !slices.Contains(files, want) {
			t.Errorf("the tree lacks %s: %v", want, files)
		}
	}
	objects, err := src["app-0001"].objects("ns")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
		if o.GetNamespace() != "ns" || o.GetLabels()[marked] != "true" {
			t.Errorf("%s is not marked, or in another namespace", o.GetKind())
		}
	}
	if want := []string{"ServiceAccount", "ConfigMap", "Service", "Deployment"}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	many, err := content{value: "1", count: 250}.objects("ns")
	if err != nil || len(many) != 250 {
		t.Errorf("%d of 250 objects: %v", len(many), err)
	}
}

func TestACommitChangesOneObject(t *testing.T) {
	_, src := spread(options{}, 3)
	for _, c := range []struct {
		name string
		to   source
		want map[string]int
	}{
		{"each", src.changed("2"), map[string]int{"app": 1, "one": 1}},
		{"one", src.changed("2", "one"), map[string]int{"app": 0, "one": 1}},
		{"none", src.changed("1"), map[string]int{"app": 0, "one": 0}},
	} {
		got := map[string]int{}
		for folder := range src {
			before, _ := src[folder].objects("ns")
			after, _ := c.to[folder].objects("ns")
			got[folder] = len(different(before, after))
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestInOrder(t *testing.T) {
	sites, _ := pairs(options{}, 2)
	base, dependent := keys(sites)[0], keys(sites)[1]
	now := time.Now()
	if !inOrder(sites, moments{dependent: now, base: now.Add(time.Millisecond)}) {
		t.Error("the dependent went first, and that is called out of order")
	}
	if inOrder(sites, moments{dependent: now.Add(time.Millisecond), base: now}) {
		t.Error("what the dependent needs went first, and that is called in order")
	}
}

func status(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestChecks(t *testing.T) {
	ready := "metadata: {generation: 2}\nstatus:\n  observedGeneration: 2\n  lastAppliedRevision: r1\n  lastHandledReconcileAt: now\n  conditions: [{type: Ready, status: \"True\"}]\n"
	key := types.NamespacedName{Name: "x"}
	for _, c := range []struct {
		name  string
		check check
		text  string
		want  bool
	}{
		{"ready", readyAt("r1"), ready, true},
		{"another revision", readyAt("r2"), ready, false},
		{"an older generation", readyAt("r1"), strings.Replace(ready, "observedGeneration: 2", "observedGeneration: 1", 1), false},
		{"not ready", readyAt("r1"), strings.Replace(ready, `"True"`, "Unknown", 1), false},
		{"answered", answered("now"), ready, true},
		{"not answered", answered("then"), ready, false},
		{"there", gone, ready, false},
	} {
		if got := c.check(key, status(t, c.text)); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
		if c.check(key, nil) != (c.name == "there") {
			t.Errorf("%s: an object that is gone", c.name)
		}
	}
	fixed := corrected()
	for i, c := range []struct {
		value string
		want  bool
	}{{"1", false}, {edited, false}, {"1", true}} {
		if got := fixed(key, status(t, "data: {value: "+c.value+"}")); got != c.want {
			t.Errorf("correction, step %d: got %v", i, got)
		}
	}
}

func TestCount(t *testing.T) {
	var r report.Result
	count(&r, cluster.Requests{
		{User: "a", Verb: "patch", Resource: "ksctlinstalls", Subresource: "status"},
		{User: "a", Verb: "get", Resource: "ksctlinstalls", Subresource: "status"},
		{User: "a", Verb: "patch", Resource: "configmaps", ImpersonatedUser: "b"},
		{User: "a", Verb: "create", Resource: "events"},
		{User: "a", Verb: "watch", Resource: "configmaps"},
		{User: "a", Verb: "update", Resource: "leases"},
		{User: "b", Verb: "patch", Resource: "configmaps"},
	}, "a")
	if r.StatusWrites != 1 || r.Events != 1 || !maps.Equal(r.Requests, map[string]int{"patch": 2, "get": 1}) {
		t.Errorf("got %+v", r)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-scenario", "a,k", "-installs", "10,20", "-peer", "ours"})
	if err != nil || !slices.Equal(o.installs, []int{10, 20}) || !slices.Equal(o.scenarios, []string{"a", "k"}) || o.runs != 5 {
		t.Errorf("%v: %+v", err, o)
	}
	for _, args := range [][]string{{"-scenario", "z"}, {"-peer", "helm"}, {"-installs", "0"}, {"-installs", "x"}, {"-profile"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestUsage(t *testing.T) {
	u := look(os.Getpid())
	if u.peak == 0 {
		t.Error("this process has no memory")
	}
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		_ = strings.Repeat("x", 1000)
	}
	if now := look(os.Getpid()); now.cpu <= u.cpu {
		t.Errorf("this process took no time: %s, then %s", u.cpu, now.cpu)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	r := report.Report{Results: []report.Result{{Scenario: "a", Peer: report.Ours, Installs: 1, WallSeconds: 1, CPUSeconds: 1, PeakRSSBytes: 1}}}
	if err := write(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.json", "results.md", "wall.svg", "cpu.svg", "rss.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatSharesAControlPlane(t *testing.T) {
	var got []string
	for _, j := range jobs(options{scenarios: []string{"a", "b", "d1", "g", "i"}}) {
		var names []string
		for _, sc := range j.scenarios {
			names = append(names, sc.name)
		}
		got = append(got, fmt.Sprintf("%s %d", strings.Join(names, ","), j.installs))
	}
	if want := []string{"a 100", "a,b,d1 500", "a 1000", "g 1", "i 500"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, j := range jobs(options{scenarios: []string{"c", "g", "a"}, installs: []int{3}}) {
		if len(j.scenarios) != 1 && (j.installs != 3 || j.scenarios[0].name != "a" || j.scenarios[1].name != "c") {
			t.Errorf("got %d installs of %v", j.installs, j.scenarios)
		}
	}
}
