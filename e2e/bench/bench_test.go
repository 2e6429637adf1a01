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

func TestScenariosHaveLayoutAndTitle(t *testing.T) {
	for _, sc := range scenarios {
		if titles()[sc.name] == "" || len(sc.installs) == 0 {
			t.Errorf("scenario %s has no title or no number of installs", sc.name)
		}
		specs, src := sc.layout(options{objects: 10}, 40)
		for _, p := range []peer{&ours{}, &argoCD{}} {
			seen := map[types.NamespacedName]bool{}
			for i, key := range objectKeys(p, specs) {
				if _, ok := src[specs[i].Folder]; !ok {
					t.Errorf("scenario %s: the source has no folder %s for install %s", sc.name, specs[i].Folder, key)
				}
				if seen[key] {
					t.Errorf("scenario %s: two installs have the name %s", sc.name, key)
				}
				seen[key] = true
			}
		}
	}
	for _, m := range report.Targets {
		if titles()[m.Scenario] == "" {
			t.Errorf("a target refers to the unknown scenario %s", m.Scenario)
		}
	}
}

func TestLayouts(t *testing.T) {
	if specs, _ := healthyLayout(options{}, 200); len(specs) != 190 {
		t.Errorf("got %d healthy installs, want 190", len(specs))
	}
	specs, src := partlyUnready(options{}, 200)
	if unready := len(specs) - len(slices.DeleteFunc(slices.Clone(specs), func(s installSpec) bool {
		return s.Folder == "sick"
	})); unready != 10 || src["sick"].fate == "" {
		t.Errorf("got %d installs that are never ready, with the fate %q; want 10", unready, src["sick"].fate)
	}
	specs, _ = dependencyPairs(options{}, 5)
	if specs[0].DependsOn != nil || specs[1].DependsOn != &specs[0] || specs[3].DependsOn != &specs[2] ||
		specs[4].DependsOn != nil {
		t.Errorf("pairs: %+v", specs)
	}
}

func TestTreeMatchesObjects(t *testing.T) {
	_, src := sharedNamespace(options{}, 2)
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
	for _, want := range []string{"stacks/app-0001/stack.yaml", "stacks/app-0001/main/4-deployment.yaml",
		"stacks/chart/chart/Chart.yaml", "stacks/chart/chart/templates/c26.yaml"} {
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
		if o.GetNamespace() != "ns" || o.GetLabels()[objectLabel] != "true" {
			t.Errorf("%s has no benchmark label or another namespace", o.GetKind())
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

func TestWithValueChangesOneObject(t *testing.T) {
	_, src := onePerNamespace(options{}, 3)
	for _, c := range []struct {
		name string
		to   source
		want map[string]int
	}{
		{"each", src.withValue("2"), map[string]int{"app": 1, "one": 1}},
		{"one", src.withValue("2", "one"), map[string]int{"app": 0, "one": 1}},
		{"none", src.withValue("1"), map[string]int{"app": 0, "one": 0}},
	} {
		got := map[string]int{}
		for folder := range src {
			before, _ := src[folder].objects("ns")
			after, _ := c.to[folder].objects("ns")
			got[folder] = len(changedObjects(before, after))
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRemovedInOrder(t *testing.T) {
	specs, _ := dependencyPairs(options{}, 2)
	both := objectKeys(&ours{}, specs)
	base, dependent := both[0], both[1]
	now := time.Now()
	if !removedInOrder(specs, timestamps{dependent: now, base: now.Add(time.Millisecond)}) {
		t.Error("the dependent install was removed first, but the result is out of order")
	}
	if removedInOrder(specs, timestamps{dependent: now.Add(time.Millisecond), base: now}) {
		t.Error("the dependency was removed first, but the result is in order")
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

func TestPredicates(t *testing.T) {
	well := "metadata: {generation: 2}\nstatus:\n  observedGeneration: 2\n  lastAppliedRevision: r1\n " +
		" lastHandledReconcileAt: now\n  conditions: [{type: Ready, status: \"True\"}]\n"
	at := func(p peer, revision string) objectPredicate {
		return ready(p, func(r string) bool { return r == revision })
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	fresh := (&argoCD{}).refreshedSince(since)
	synced := "metadata: {annotations: {x: y}}\nstatus:\n  reconciledAt: \"2026-01-02T03:04:05Z\"\n" +
		"  sync: {status: Synced, revision: r1}\n  health: {status: Healthy}\n"
	for _, c := range []struct {
		name  string
		check objectPredicate
		text  string
		want  bool
	}{
		{"ready", at(&ours{}, "r1"), well, true},
		{"another revision", at(&ours{}, "r2"), well, false},
		{"an older generation", at(&ours{}, "r1"),
			strings.Replace(well, "observedGeneration: 2", "observedGeneration: 1", 1), false},
		{"not ready", at(&ours{}, "r1"), strings.Replace(well, `"True"`, "Unknown", 1), false},
		{"no revision", ready(&ours{}, func(string) bool {
			return true
		}), strings.Replace(well, "lastAppliedRevision: r1", "x: y", 1), false},
		{"answered", reconcileHandled("now"), well, true},
		{"not answered", reconcileHandled("then"), well, false},
		{"exists", deleted, well, false},
		{"an Application", at(&argoCD{}, "r1"), synced, true},
		{"an Application at another revision", at(&argoCD{}, "r2"), synced, false},
		{"an Application that is not synced", at(&argoCD{}, "r1"), strings.Replace(synced, "Synced", "OutOfSync", 1),
			false},
		{"an Application that is not healthy", at(&argoCD{}, "r1"),
			strings.Replace(synced, "Healthy", "Progressing", 1), false},
		{"refreshed", fresh, synced, true},
		{"refreshed before", fresh, strings.Replace(synced, "04:05Z", "04:04Z", 1), false},
		{"never refreshed", fresh, strings.Replace(synced, "reconciledAt", "x", 1), false},
		{"refresh pending", fresh, strings.Replace(synced, "x: y", "argocd.argoproj.io/refresh: normal", 1), false},
		{"refreshed, and no longer healthy", fresh, strings.Replace(synced, "Healthy", "Degraded", 1), false},
	} {
		if got := c.check(status(t, c.text)); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
		if c.check(nil) != (c.name == "exists") {
			t.Errorf("%s: wrong result for a deleted object", c.name)
		}
	}
	fixed := reverted()
	for i, c := range []struct {
		value string
		want  bool
	}{{"1", false}, {editedValue, false}, {"1", true}} {
		if got := fixed(status(t, "data: {value: "+c.value+"}")); got != c.want {
			t.Errorf("correction, step %d: got %v", i, got)
		}
	}
}

func TestCountRequests(t *testing.T) {
	var r report.Result
	countRequests(&r, cluster.Requests{
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

func TestParseFlags(t *testing.T) {
	o, err := parseFlags([]string{"-scenario", "a,k", "-installs", "10,20", "-peer", "ours"})
	if err != nil || !slices.Equal(o.installs, []int{10, 20}) || !slices.Equal(o.scenarios, []string{"a", "k"}) ||
		o.runs != 5 {
		t.Errorf("%v: %+v", err, o)
	}
	for _, args := range [][]string{{"-scenario", "z"}, {"-peer", "helm"}, {"-installs", "0"}, {"-installs", "x"},
		{"-profile"}} {
		if _, err := parseFlags(args); err == nil {
			t.Errorf("parse accepted %v", args)
		}
	}
}

func TestReadUsage(t *testing.T) {
	roots := []int{os.Getpid()}
	u := readUsage(roots)
	if u.peakRSS == 0 {
		t.Error("the peak memory of this process is 0")
	}
	if none := readUsage(nil); none != (usage{}) {
		t.Errorf("usage without processes: %+v", none)
	}
	now := u
	// other processes may occupy the processors
	for began := time.Now(); now.cpu <= u.cpu && time.Since(began) < time.Minute; now = readUsage(roots) {
		for range 1000 {
			_ = strings.Repeat("x", 1000)
		}
	}
	if now.cpu <= u.cpu {
		t.Errorf("the CPU time of this process did not grow: %s, then %s", u.cpu, now.cpu)
	}
}

func TestProcessTreeHasNoDuplicates(t *testing.T) {
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
		got := processTree(roots)
		if !slices.Equal(got[:len(roots)], roots) || !slices.Contains(got, child.Process.Pid) {
			t.Errorf("process tree of %v: %v", roots, got)
		}
		if slices.Sort(got); len(slices.Compact(got)) != len(got) {
			t.Errorf("process tree of %v has duplicates: %v", roots, got)
		}
	}
}

func TestWriteResults(t *testing.T) {
	dir := t.TempDir()
	r := report.Report{Results: []report.Result{{Scenario: "a", Peer: report.Ours, Installs: 1, WallSeconds: 1,
		CPUSeconds: 1, PeakRSSBytes: 1}}}
	if err := writeResults(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.json", "results.md", "wall.svg", "cpu.svg", "rss.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJobsGroupScenariosByControlPlane(t *testing.T) {
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

func TestPeersOfScenarios(t *testing.T) {
	for peer, want := range map[string]string{
		report.Ours:   "a b c d1 d2 e f0 f g h i j k l",
		report.Kind:   "l",
		report.Flux:   "a b c d1 d2 e f0 f g i j k",
		report.ArgoCD: "a b d2 i",
		report.Floor:  "a b c g k",
	} {
		var names []string
		for _, sc := range scenarios {
			if slices.Contains(sc.peers, peer) {
				names = append(names, sc.name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s runs scenarios %s, want %s", peer, got, want)
		}
	}
	o, err := parseFlags(nil)
	if want := []string{report.Ours, report.Flux, report.Floor}; err != nil || !slices.Equal(o.peers, want) {
		t.Errorf("%v: default peers %v, want %v", err, o.peers, want)
	}
}

func TestApplicationInstallsSameManifests(t *testing.T) {
	specs, src := dependencyPairs(options{}, 2)
	u, ok := (&argoCD{url: "http://git.example.com/fleet.git"}).installObject(specs[1],
		time.Hour).(*unstructured.Unstructured)
	if !ok {
		t.Fatal("installObject did not return an unstructured object")
	}
	path, _, _ := unstructured.NestedString(u.Object, "spec", "source", "path")
	if files, err := fs.Glob(src.tree(), path+"/*.yaml"); err != nil || len(files) != 4 {
		t.Errorf("%s has %v: %v", path, files, err)
	}
	if ns, _, _ := unstructured.NestedString(u.Object, "spec", "destination", "namespace"); ns != specs[1].Namespace {
		t.Errorf("destination namespace %s, want %s", ns, specs[1].Namespace)
	}
}
