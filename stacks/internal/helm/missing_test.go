package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"
)

// enabledCase is a chart with the dependencies "sub", and "other" if its fields are set.
type enabledCase struct {
	// sub and other are fields of the dependencies; chart and given are the values of the chart and
	// of the install.
	sub, other, chart, given string
	want                     []string
}

var enabledCases = map[string]enabledCase{
	"nothing disables it":       {want: []string{"sub"}},
	"a condition that is false": {sub: "condition: sub.enabled", chart: "sub: {enabled: false}"},
	"a condition that is true": {sub: "condition: sub.enabled", chart: "sub: {enabled: true}",
		want: []string{"sub"}},
	"a condition that is not set": {sub: "condition: sub.enabled", want: []string{"sub"}},
	"values of the install come first": {sub: "condition: sub.enabled",
		chart: "sub: {enabled: true}", given: "sub: {enabled: false}"},
	"values of the install that enable it": {sub: "condition: sub.enabled", chart: "sub: {enabled: false}",
		given: "sub: {enabled: true}", want: []string{"sub"}},
	"a null removes the value of the chart": {sub: "condition: sub.enabled",
		chart: "sub: {enabled: false}", given: "sub: {enabled: null}", want: []string{"sub"}},
	"the first condition that exists": {sub: "condition: 'no.sub,use.sub,sub.enabled'",
		chart: "use: {sub: false}\nsub: {enabled: true}"},
	"a condition that is no boolean": {sub: "condition: 'use.sub,more.sub'",
		chart: "use: {sub: 'false'}\nmore: {sub: false}"},
	"a space is part of a path": {sub: "condition: 'none, use.sub'",
		chart: "use: {sub: false}", want: []string{"sub"}},
	"a tag that is false": {sub: "tags: [a]", chart: "tags: {a: false}"},
	"one tag of several is true": {sub: "tags: [a, b]", chart: "tags: {a: false, b: true}",
		want: []string{"sub"}},
	"a tag that is not set": {sub: "tags: [a]", chart: "tags: {b: false}", want: []string{"sub"}},
	"a condition before a tag": {sub: "tags: [a], condition: use.sub", chart: "tags: {a: false}\nuse: {sub: true}",
		want: []string{"sub"}},
	"a condition that is false before a tag": {sub: "tags: [a], condition: use.sub",
		chart: "tags: {a: true}\nuse: {sub: false}"},
	"a condition that is not set, and a tag": {sub: "tags: [a], condition: use.sub", chart: "tags: {a: false}"},
	"an alias": {sub: "alias: front, condition: front.enabled",
		chart: "front: {enabled: false}"},
	"the name of an alias is no key": {sub: "alias: front, condition: front.enabled",
		chart: "sub: {enabled: false}", want: []string{"sub"}},
	"only one alias": {sub: "alias: front, condition: front.enabled",
		other: "alias: back, condition: back.enabled, name: sub", chart: "front: {enabled: false}",
		want: []string{"sub"}},
	"a value of another dependency": {other: "condition: sub.other", chart: "sub: {other: false}",
		want: []string{"sub"}},
	"both":          {sub: "condition: a.b", other: "tags: [t]", given: "a: {b: false}\ntags: {t: false}"},
	"global values": {sub: "condition: global.sub", given: "global: {sub: false}"},
}

// files returns the files of the chart in the folder c.
func (c *enabledCase) files() map[string][]byte {
	entry := func(name, fields string) string {
		out := "- {version: 1.x, repository: 'https://charts.example.com'"
		if !strings.Contains(fields, "name:") {
			out += ", name: " + name
		}
		if fields != "" {
			out += ", " + fields
		}
		return out + "}\n"
	}
	dependencies := entry("sub", c.sub)
	if c.other != "" {
		dependencies += entry("other", c.other)
	}
	return map[string][]byte{
		"c/Chart.yaml": []byte("apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n" + dependencies),
		"c/Chart.lock": []byte("dependencies:\n" +
			"- {name: sub, version: 1.0.0, repository: 'https://charts.example.com'}\n" +
			"- {name: other, version: 1.0.0, repository: 'https://charts.example.com'}\n"),
		"c/values.yaml": []byte(c.chart),
	}
}

// EnabledDependencies returns what Helm renders if all charts are vendored.
func TestEnabledDependenciesAreThoseOfHelm(t *testing.T) {
	for name, c := range enabledCases {
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(c.given), &given); err != nil {
			t.Fatal(err)
		}
		tree, _ := writeSource(t, c.files())
		opened, err := Loader{}.Open(tree, "c")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		needs, err := opened.EnabledDependencies(given)
		var got []string
		for _, d := range needs {
			got = append(got, d.Name)
		}
		if want := c.enabledByHelm(t, given); err != nil || !slices.Equal(got, c.want) || !slices.Equal(want, c.want) {
			t.Errorf("%s: %v, %v; Helm %v; want %v", name, got, err, want, c.want)
		}
		if _, err := opened.EnabledDependencies(nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// enabledByHelm returns the names of the charts that Helm renders.
func (c *enabledCase) enabledByHelm(t *testing.T, given map[string]any) (out []string) {
	t.Helper()
	var files []*archive.BufferedFile
	for name, data := range c.files() {
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(name, "c/"), Data: data})
	}
	for _, name := range []string{"sub", "other"} {
		files = append(files, &archive.BufferedFile{Name: "charts/" + name + "/Chart.yaml",
			Data: []byte("apiVersion: v2\nversion: 1.0.0\nname: " + name + "\nannotations: {chart: " + name + "}\n")})
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	if c.other == "" || strings.Contains(c.other, "name:") {
		loaded.SetDependencies(slices.DeleteFunc(loaded.Dependencies(), func(sub *chart.Chart) bool {
			return sub.Name() == "other" // Helm renders a vendored chart that is no dependency
		})...)
	}
	if err := util.ProcessDependencies(loaded, given); err != nil {
		t.Fatal(err)
	}
	for _, sub := range loaded.Dependencies() {
		out = append(out, sub.Metadata.Annotations["chart"])
	}
	slices.Sort(out)
	slices.Reverse(out) // as in Chart.yaml: sub is before other
	return slices.Compact(out)
}

// A value of the missing chart itself can enable it, so it is fetched to be asked.
func TestDependenciesThatTheirOwnValuesMayEnableAreFetched(t *testing.T) {
	for fields, want := range map[string]int{
		"tags: [a], condition: sub.enabled":                   1,
		"tags: [a], condition: 'sub.enabled,use.sub'":         1,
		"tags: [a], condition: 'use.sub,sub.enabled'":         0,
		"tags: [a], alias: front, condition: sub.enabled":     0,
		"tags: [a], alias: front, condition: front.deep.er":   1,
		"tags: [a], condition: sub":                           0,
		"tags: [a], condition: 'sub.a,sub.a.b,sub.a.c,sub.d'": 1,
		"tags: [a], condition: 'sub.a.b,sub.a', alias: sub":   1,
	} {
		c := enabledCase{sub: fields, chart: "tags: {a: false}\nuse: {sub: false}"}
		tree, _ := writeSource(t, c.files())
		opened, err := Loader{}.Open(tree, "c")
		if err != nil {
			t.Fatal(err)
		}
		if needs, err := opened.EnabledDependencies(nil); err != nil || len(needs) != want {
			t.Errorf("%s: %v, %v; want %d", fields, needs, err, want)
		}
	}
}

// A fetched chart lacks a dependency of its own, which its values or those of its parent disable.
func TestNestedDependencies(t *testing.T) {
	c := enabledCase{}
	tree, _ := writeSource(t, c.files())
	opened, err := Loader{}.Open(tree, "c")
	if err != nil {
		t.Fatal(err)
	}
	_, root := writeSource(t, map[string][]byte{
		"sub/Chart.yaml": []byte("apiVersion: v2\nname: sub\nversion: 1.0.0\ndependencies:\n" +
			"- {name: deep, version: 1.x, repository: '@x', condition: deep.enabled}\n"),
		"sub/values.yaml": []byte("deep: {enabled: false}\n"),
	})
	whole, err := opened.WithDependencies([]FetchedDependency{{Root: root,
		Dependency: Dependency{Name: "sub", Version: "1.0.0", Repository: "https://charts.example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"{}":                             "",
		"deep: {enabled: true}":          "",
		"sub: {deep: {enabled: false}}":  "",
		"sub: {deep: {enabled: true}}":   "c/charts/sub-1.0.0/Chart.yaml: the chart depends on deep, which is not",
		"sub: {deep: {enabled: 'true'}}": "the chart depends on deep",
		"sub: text":                      `values: "sub" must be a mapping`,
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(given), &values); err != nil {
			t.Fatal(err)
		}
		needs, err := whole.EnabledDependencies(values)
		if got := fmt.Sprint(err); len(needs) > 0 || (err == nil) != (want == "") || !strings.Contains(got, want) &&
			want != "" {
			t.Errorf("%s: %v, %v", given, needs, err)
		}
	}
}
