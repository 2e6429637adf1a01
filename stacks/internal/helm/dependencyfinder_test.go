package helm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/ksctl/gitops/stacks/internal/source"
)

func TestLockedDependency(t *testing.T) {
	const at, elsewhere = "https://charts.example.com", "https://other.example.com"
	for name, c := range map[string]struct {
		wanted string
		lock   []*chart.Dependency
		want   string
	}{
		"exact": {"1.2.3", []*chart.Dependency{{Name: "a", Version: "1.2.3", Repository: at}},
			"1.2.3"},
		"in a range": {">=1.2 <2", []*chart.Dependency{{Name: "a", Version: "1.9.0", Repository: at}},
			"1.9.0"},
		"with a slash at the end": {"1.x", []*chart.Dependency{{Name: "a", Version: "1.9.0", Repository: at + "/"}},
			"1.9.0"},
		"with a v before it": {"1.x", []*chart.Dependency{{Name: "a", Version: "v1.9.0", Repository: at}},
			"v1.9.0"},
		"the second of that name": {"2.x", []*chart.Dependency{{Name: "a", Version: "1.9.0", Repository: at},
			{Name: "a", Version: "2.1.0", Repository: at}}, "2.1.0"},
		"out of range": {"2.x", []*chart.Dependency{{Name: "a", Version: "1.9.0", Repository: at}}, ""},
		"a candidate": {"1.x", []*chart.Dependency{{Name: "a", Version: "1.9.0-rc.1", Repository: at}},
			""},
		"of another repository": {"1.x", []*chart.Dependency{{Name: "a", Version: "1.9.0", Repository: elsewhere}},
			""},
		"another chart":          {"1.x", []*chart.Dependency{{Name: "b", Version: "1.9.0", Repository: at}}, ""},
		"a version that is none": {"1.x", []*chart.Dependency{{Name: "a", Version: "one", Repository: at}}, ""},
		"nothing":                {"1.x", []*chart.Dependency{nil}, ""},
		"an alias is not its name": {"1.x",
			[]*chart.Dependency{{Name: "b", Alias: "a", Version: "1.9.0", Repository: at}}, ""},
	} {
		d, why := lockedDependency(&chart.Dependency{Name: "a", Version: c.wanted, Repository: at},
			&chart.Lock{Dependencies: c.lock})
		if d.Version != c.want || (why == "") != (c.want != "") {
			t.Errorf("%s: %+v, %q; want %q", name, d, why, c.want)
		}
		if why == "" && (d.Repository != at || d.Name != "a") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// writeSource writes files to a new folder and opens it.
func writeSource(t testing.TB, files map[string][]byte) (*source.Tree, string) {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), data)
	}
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree, root
}

const (
	chartWithDependencies = "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n- {name: sub, version: 1.x, " +
		"repository: 'https://charts.example.com'}\n- {name: far, version: 1.x, repository: " +
		"'oci://r.example.com/charts'}\n"
	lock = "dependencies:\n- {name: sub, version: 1.0.0, repository: " +
		"'https://charts.example.com'}\n- {name: far, version: 1.4.0, repository: " +
		"'oci://r.example.com/charts'}\ndigest: sha256:ab\ngenerated: \"2026-01-02T03:04:05Z\"\n"
)

// A DependencyFinder reads only a bounded part of charts.
func TestRequiredIsBounded(t *testing.T) {
	meta := "apiVersion: v2\nname: sub\nversion: 1.0.0\n"
	zeros := strings.Repeat("\x00", 40<<20)
	bomb := gzipped(t, archiveOf(t, "sub/x", zeros, "sub/Chart.yaml", meta))
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"archives that are large together": {map[string][]byte{"c/charts/a.tgz": bomb, "c/charts/b.tgz": bomb},
			"c/charts/b.tgz: this is not a chart archive: unpacked, " +
				"the vendored archives have more than 67108864 bytes"},
		"a large Chart.yaml in an archive": {map[string][]byte{"c/charts/a.tgz": gzipped(t,
			archiveOf(t, "sub/Chart.yaml", meta+"#"+zeros[:maxMetadataFile]))},
			"its Chart.yaml has more than 1048576 bytes"},
		"a large Chart.yaml in a folder": {
			map[string][]byte{"c/charts/a/Chart.yaml": []byte(meta + "#" + zeros[:maxMetadataFile])},
			"1048576 are allowed"},
		"a large Chart.lock": {
			map[string][]byte{"c/Chart.lock": []byte(lock + "#" + zeros[:maxMetadataFile])}, "1048576 are allowed"},
		"an archive without a chart": {map[string][]byte{"c/charts/a.tgz": gzipped(t, archiveOf(t, "sub/x", ""))},
			"there is no Chart.yaml"},
		"no archive": {map[string][]byte{"c/charts/a.tgz": []byte("x")},
			"c/charts/a.tgz: this is not a chart archive"},
		"aliases in a subchart": {
			map[string][]byte{"c/charts/a/Chart.yaml": []byte(meta + "annotations: {a: &a x, b: *a}\n")},
			"c/charts/a/Chart.yaml:4: this is a YAML alias"},
		"two documents": {map[string][]byte{"c/Chart.lock": []byte(lock + "---\n{}\n")},
			"the file must have one YAML document"},
		"a lock that is something else": {map[string][]byte{"c/Chart.lock": []byte("dependencies: 1\n")},
			"c/Chart.lock: the chart cannot be loaded"},
		"a dependency that is nothing": {
			map[string][]byte{"c/Chart.yaml": []byte("apiVersion: v2\nname: shop\n" +
				"version: 1.0.0\ndependencies: [~]\n")}, "must not contain empty"},
		"an empty Chart.yaml": {map[string][]byte{"c/Chart.yaml": nil}, "c/Chart.yaml: the file is empty"},
	} {
		files := map[string][]byte{"c/Chart.yaml": []byte(chartWithDependencies), "c/Chart.lock": []byte(lock)}
		for file, data := range c.files {
			files[file] = data
		}
		tree, _ := writeSource(t, files)
		needs, err := NewDependencyFinder(tree, Limits{}).Required("c")
		if err == nil || !strings.Contains(err.Error(), c.want) || needs != nil {
			t.Errorf("%s: %v, %v\nwant %s", name, needs, err, c.want)
			continue
		}
		checkTyped(t, err)
	}
}

// A dependency from elsewhere in the source cannot be outside of the source.
func TestLocalDependenciesStayInside(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "Chart.yaml"), []byte("apiVersion: v2\nname: sub\nversion: 1.0.0\n"))
	tree, root := writeSource(t, map[string][]byte{"c/Chart.yaml": []byte("apiVersion: v2\nname: shop\n" +
		"version: 1.0.0\ndependencies: [{name: sub, version: 1.x, repository: 'file://../link'}]\n"),
		"inside/Chart.yaml": []byte("apiVersion: v2\nname: sub\nversion: 1.0.0\n")})
	link := filepath.Join(root, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (Loader{}).Open(tree, "c"); err == nil ||
		!strings.Contains(err.Error(), "there is no folder link in the source") {
		t.Errorf("a link out of the source: %v", err)
	}
	if err := errors.Join(os.Remove(link), os.Symlink("inside", link)); err != nil {
		t.Fatal(err)
	}
	if _, err := (Loader{}).Open(tree, "c"); err != nil {
		t.Errorf("a link within the source: %v", err)
	}
}

// FuzzRequired reads charts with arbitrary dependencies, locks and vendored charts. Required and
// Open find the same dependencies, or return an error with a file.
func FuzzRequired(f *testing.F) {
	sub := "apiVersion: v2\nname: sub\nversion: 1.0.0\n"
	f.Add(chartWithDependencies, lock, sub)
	f.Add(chartWithDependencies, "", sub)
	f.Add(strings.ReplaceAll(chartWithDependencies, "apiVersion: v2", "apiVersion: v1"), lock,
		"name: other\nversion: 1.0.0\n")
	f.Add(chartWithDependencies+"- {name: inner, version: '*', repository: 'file://charts/sub', alias: x}\n", lock,
		"apiVersion: v2\nname: inner\nversion: 2.0.0\n")
	f.Add(chartWithDependencies+"- {name: far, version: '>0', repository: '@x', condition: a.b, tags: [c]}\n",
		"dependencies: [~, {name: far}]\n", sub)
	f.Add("apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: a, version: &a 1.x, repository: *a}]\n",
		"~\n", "[]")
	f.Add("apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: a, repository: 'file://.'}]\n", "{}",
		"\xff")
	f.Fuzz(func(t *testing.T, meta, locked, brought string) {
		tree, _ := writeSource(t, map[string][]byte{"c/Chart.yaml": []byte(meta), "c/Chart.lock": []byte(locked),
			"c/charts/sub/Chart.yaml": []byte(brought)})
		needs, err := NewDependencyFinder(tree, Limits{}).Required("c")
		if err != nil {
			checkTyped(t, err)
		}
		c, openErr := Loader{}.Open(tree, "c")
		if openErr != nil {
			checkTyped(t, openErr)
			return
		}
		if err != nil && len(c.missing) > 0 {
			t.Fatalf("Open succeeded, but Required failed: %v", err)
		}
		if err == nil && !reflect.DeepEqual(needs, c.RequiredDependencies()) {
			t.Fatalf("Required returned %+v, and Open %+v", needs, c.RequiredDependencies())
		}
		if slices.ContainsFunc(needs, func(d Dependency) bool { return d.Name == "" && d.Repository == "" }) {
			t.Fatalf("%+v", needs)
		}
	})
}

func TestDependencyCountIsBounded(t *testing.T) {
	head := &chart.Chart{Metadata: &chart.Metadata{}, Lock: &chart.Lock{}}
	for i := range MaxDependencies + 1 {
		d := &chart.Dependency{Name: fmt.Sprint("c", i), Version: "1.0.0", Repository: "https://charts.example.com"}
		head.Metadata.Dependencies, head.Lock.Dependencies = append(head.Metadata.Dependencies, d),
			append(head.Lock.Dependencies, d)
	}
	_, err := resolveMissing("c", head, "Chart.lock", nil)
	if err == nil || !strings.Contains(err.Error(), "the chart lists 257 dependencies") {
		t.Errorf("one dependency more than allowed: %v", err)
	}
	head.Metadata.Dependencies = head.Metadata.Dependencies[1:]
	if _, err := resolveMissing("c", head, "Chart.lock", nil); err == nil {
		t.Error("one locked dependency more than allowed was accepted")
	}
	head.Lock.Dependencies = head.Lock.Dependencies[1:]
	if l, err := resolveMissing("c", head, "Chart.lock", []string{"c7"}); err != nil ||
		len(required(l)) != MaxDependencies-1 {
		t.Errorf("as many as allowed: %v", err)
	}
}

// The limits of a DependencyFinder are for all charts of a source together.
func TestDependencyFinderIsBounded(t *testing.T) {
	files := map[string][]byte{}
	large := []byte(chartWithDependencies + "#" + strings.Repeat("x", maxMetadataFile-len(chartWithDependencies)-1))
	for i := range maxMetadataTotal/maxMetadataFile + 1 {
		files[fmt.Sprintf("c%d/Chart.yaml", i)], files[fmt.Sprintf("c%d/Chart.lock", i)] = large, nil
	}
	tree, _ := writeSource(t, files)
	l := NewDependencyFinder(tree, Limits{})
	for i := range maxMetadataTotal / maxMetadataFile {
		if _, err := l.Required(fmt.Sprint("c", i)); err == nil || strings.Contains(err.Error(), "are allowed") {
			t.Fatalf("chart %d: %v", i, err)
		}
	}
	if _, err := l.Required(fmt.Sprint("c", maxMetadataTotal/maxMetadataFile)); err == nil ||
		!strings.Contains(err.Error(), "the file has 1048576 bytes; 0 are allowed") {
		t.Errorf("one chart more than allowed: %v", err)
	}
	if _, err := NewDependencyFinder(tree, Limits{}).Required("c0"); err == nil ||
		!strings.Contains(err.Error(), "the file is empty") {
		t.Errorf("a new DependencyFinder: %v", err)
	}
}
