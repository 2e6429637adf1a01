package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
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
		for _, p := range []peer{&ours{}, &argoCD{}} {
			seen := map[types.NamespacedName]bool{}
			for i, key := range keys(p, sites) {
				if _, ok := src[sites[i].Folder]; !ok {
					t.Errorf("%s: %s wants the folder %s, which is not there", sc.name, key, sites[i].Folder)
				}
				if seen[key] {
					t.Errorf("%s: two installs are called %s", sc.name, key)
				}
				seen[key] = true
			}
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
	both := keys(&ours{}, sites)
	base, dependent := both[0], both[1]
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
	well := "metadata: {generation: 2}\nstatus:\n  observedGeneration: 2\n  lastAppliedRevision: r1\n  lastHandledReconcileAt: now\n  conditions: [{type: Ready, status: \"True\"}]\n"
	at := func(p peer, revision string) check { return ready(p, func(r string) bool { return r == revision }) }
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	fresh := (&argoCD{}).refreshed(since)
	synced := "metadata: {annotations: {x: y}}\nstatus:\n  reconciledAt: \"2026-01-02T03:04:05Z\"\n  sync: {status: Synced, revision: r1}\n  health: {status: Healthy}\n"
	key := types.NamespacedName{Name: "x"}
	for _, c := range []struct {
		name  string
		check check
		text  string
		want  bool
	}{
		{"ready", at(&ours{}, "r1"), well, true},
		{"another revision", at(&ours{}, "r2"), well, false},
		{"an older generation", at(&ours{}, "r1"), strings.Replace(well, "observedGeneration: 2", "observedGeneration: 1", 1), false},
		{"not ready", at(&ours{}, "r1"), strings.Replace(well, `"True"`, "Unknown", 1), false},
		{"no revision at all", ready(&ours{}, func(string) bool { return true }), strings.Replace(well, "lastAppliedRevision: r1", "x: y", 1), false},
		{"answered", answered("now"), well, true},
		{"not answered", answered("then"), well, false},
		{"there", gone, well, false},
		{"an Application", at(&argoCD{}, "r1"), synced, true},
		{"an Application at another revision", at(&argoCD{}, "r2"), synced, false},
		{"an Application that is not synced", at(&argoCD{}, "r1"), strings.Replace(synced, "Synced", "OutOfSync", 1), false},
		{"an Application that is not healthy", at(&argoCD{}, "r1"), strings.Replace(synced, "Healthy", "Progressing", 1), false},
		{"refreshed", fresh, synced, true},
		{"refreshed before", fresh, strings.Replace(synced, "04:05Z", "04:04Z", 1), false},
		{"never refreshed", fresh, strings.Replace(synced, "reconciledAt", "x", 1), false},
		{"to be refreshed", fresh, strings.Replace(synced, "x: y", "argocd.argoproj.io/refresh: normal", 1), false},
		{"refreshed, and no longer healthy", fresh, strings.Replace(synced, "Healthy", "Degraded", 1), false},
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
	roots := []int{os.Getpid()}
	u := look(roots)
	if u.peak == 0 {
		t.Error("this process has no memory")
	}
	if none := look(nil); none != (usage{}) {
		t.Errorf("no process took %+v", none)
	}
	now := u
	for began := time.Now(); now.cpu <= u.cpu && time.Since(began) < time.Minute; now = look(roots) { // others may have the processors
		for range 1000 {
			_ = strings.Repeat("x", 1000)
		}
	}
	if now.cpu <= u.cpu {
		t.Errorf("this process took no time: %s, then %s", u.cpu, now.cpu)
	}
}

func TestEachProcessCountsOnce(t *testing.T) {
	child := exec.Command("sleep", "3600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	self := os.Getpid()
	for _, roots := range [][]int{{self}, {self, child.Process.Pid}, {child.Process.Pid, self}} {
		got := tree(roots)
		if !slices.Equal(got[:len(roots)], roots) || !slices.Contains(got, child.Process.Pid) {
			t.Errorf("%v have %v", roots, got)
		}
		if slices.Sort(got); len(slices.Compact(got)) != len(got) {
			t.Errorf("%v have one twice: %v", roots, got)
		}
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

func TestWhoDoesWhat(t *testing.T) {
	for peer, want := range map[string]string{
		report.Ours:   "a b c d1 d2 e f0 f g h i j k",
		report.Flux:   "a b c d1 d2 e f0 f g i j k",
		report.ArgoCD: "a b d2 i",
		report.Floor:  "a b c g k",
	} {
		var names []string
		for _, sc := range scenarios {
			if sc.peers == nil || slices.Contains(sc.peers, peer) {
				names = append(names, sc.name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s does %s, want %s", peer, got, want)
		}
	}
	o, err := parse(nil)
	if want := []string{report.Ours, report.Flux, report.Floor}; err != nil || !slices.Equal(o.peers, want) {
		t.Errorf("%v: %v take part when nobody says who, want %v", err, o.peers, want)
	}
}

func TestAnApplicationInstallsWhatTheOthersDo(t *testing.T) {
	sites, src := pairs(options{}, 2)
	u, ok := (&argoCD{url: "http://git.example.com/fleet.git"}).wish(sites[1], time.Hour).(*unstructured.Unstructured)
	if !ok {
		t.Fatal("it is something else")
	}
	path, _, _ := unstructured.NestedString(u.Object, "spec", "source", "path")
	if files, err := fs.Glob(src.tree(), path+"/*.yaml"); err != nil || len(files) != 4 {
		t.Errorf("%s has %v: %v", path, files, err)
	}
	if ns, _, _ := unstructured.NestedString(u.Object, "spec", "destination", "namespace"); ns != sites[1].Namespace {
		t.Errorf("it goes to %s", ns)
	}
}
