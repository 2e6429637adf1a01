package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks"
)

const (
	indexRepository = "https://charts.example.com"
	ociRepository   = "oci://registry.example.com/charts"
)

// chartFiles returns the files of a chart that others depend on.
func chartFiles(name, version, more string) map[string]string {
	return map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n" + more,
		"values.yaml": "size: 1\n",
		"templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {version: " +
			"{{ .Chart.Version }}, values: {{ .Values | toJson | quote }}, random: {{ randAlpha 8 }}}\n",
	}
}

// inFolder moves files to a folder.
func inFolder(folder string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[folder+"/"+name] = text
	}
	return out
}

func mergeFiles(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, files := range all {
		maps.Copy(out, files)
	}
	return out
}

// umbrellaChart returns a stack with a chart in the folder "chart" that depends on others. lock has
// the entries of its Chart.lock; empty means no Chart.lock.
func umbrellaChart(dependencies, lock string) map[string]string {
	files := inFolder("chart", chartFiles("shop", "1.0.0", "dependencies:\n"+dependencies))
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}")
	if lock != "" {
		files["chart/Chart.lock"] = "dependencies:\n" + lock + "digest: sha256:" + strings.Repeat("0", 64) +
			"\ngenerated: \"2026-01-02T03:04:05Z\"\n"
	}
	return files
}

func dependency(name, version, repository, more string) string {
	return fmt.Sprintf("- {name: %s, version: %q, repository: %q%s}\n", name, version, repository, more)
}

// bothDependencies are dependencies from an index and from an OCI registry, with all fields of a
// Helm dependency.
var (
	bothDependencies = dependency("cache", "^1.0.0", indexRepository+"/", ", condition: cache.enabled") +
		dependency("web", "2.x", ociRepository, ", alias: front, tags: [face]") +
		dependency("web", "2.x", ociRepository, ", alias: back, tags: [face]")
	bothLocked = dependency("cache", "1.4.2", indexRepository, "") + dependency("web", "2.5.0", ociRepository, "") +
		dependency("web", "2.5.0", ociRepository, "")
)

func bothFetched() map[string]map[string]string {
	return map[string]map[string]string{"cache": chartFiles("cache", "1.4.2", ""),
		"web": chartFiles("web", "2.5.0", "")}
}

// neededCharts returns the charts to fetch: those of RequiredCharts, and of a MissingChartsError.
func neededCharts(t testing.TB, req stacks.Request) []stacks.ChartRef {
	t.Helper()
	refs, err := stacks.RequiredCharts(req)
	if err != nil {
		t.Fatal(err)
	}
	req.Charts = nil
	for _, ref := range refs { // of any content: an incomplete render does not read them
		req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref})
	}
	_, err = stacks.Render(t.Context(), req)
	if missing, ok := errors.AsType[*stacks.MissingChartsError](err); ok {
		refs = append(refs, missing.Charts...)
	}
	return refs
}

// fetchCharts sets req.Charts to the needed charts, with charts by name.
func fetchCharts(t testing.TB, req *stacks.Request, parts map[string]map[string]string) {
	t.Helper()
	refs := neededCharts(t, *req)
	req.Charts = nil
	for _, ref := range refs {
		ref.Digest = storeDigest
		req.Charts = append(req.Charts,
			stacks.FetchedChart{ChartRef: ref, Root: writeTree(t, inFolder(ref.Name, parts[ref.Name]))})
	}
}

func chartRequest(t testing.TB, files map[string]string, values map[string]any) stacks.Request {
	t.Helper()
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
	if values != nil {
		req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Override: map[string]any{"values": values}}}
	}
	return req
}

func TestNeededChartsAreMissingDependencies(t *testing.T) {
	refs := neededCharts(t, chartRequest(t, umbrellaChart(bothDependencies, bothLocked), nil))
	want := []stacks.ChartRef{{Component: "shop", DependencyOf: "chart", Repository: indexRepository + "/",
		Name: "cache", Version: "1.4.2"},
		{Component: "shop", DependencyOf: "chart", Repository: ociRepository, Name: "web", Version: "2.5.0"}}
	if !reflect.DeepEqual(refs, want) {
		t.Errorf("%+v", refs)
	}
	off := false
	packed := tgz(t, inFolder("cache", chartFiles("cache", "1.4.2", "")))
	for name, c := range map[string]struct {
		files  map[string]string
		choice stacks.ComponentChoice
		want   []string
	}{
		"vendored as an archive": {mergeFiles(umbrellaChart(bothDependencies, bothLocked),
			map[string]string{"chart/charts/cache-1.4.2.tgz": packed}), stacks.ComponentChoice{}, []string{"web"}},
		"vendored as a folder": {mergeFiles(umbrellaChart(bothDependencies, bothLocked),
			inFolder("chart/charts/anything", chartFiles("web", "2.5.0", ""))), stacks.ComponentChoice{},
			[]string{"cache"}},
		"in a folder that Helm ignores": {mergeFiles(umbrellaChart(bothDependencies, bothLocked),
			inFolder("chart/charts/_web", chartFiles("web", "2.5.0", "")),
			map[string]string{"chart/charts/cache-1.4.2.tgz": packed, "chart/.helmignore": "charts/*.tgz\n"}),
			stacks.ComponentChoice{}, []string{"cache", "web"}},
		"no lock":         {umbrellaChart(bothDependencies, ""), stacks.ComponentChoice{}, nil},
		"no dependencies": {umbrellaChart("", ""), stacks.ComponentChoice{}, nil},
		"disabled": {umbrellaChart(bothDependencies, bothLocked), stacks.ComponentChoice{Enabled: &off},
			nil},
		"disabled by a condition": {umbrellaChart(bothDependencies, bothLocked),
			stacks.ComponentChoice{
				Override: map[string]any{"values": map[string]any{"cache": map[string]any{"enabled": false}}}},
			[]string{"web"}},
		"Helm 2": {map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: chart}}"),
			"chart/Chart.yaml":        "apiVersion: v1\nname: shop\nversion: 1.0.0\n",
			"chart/requirements.yaml": "dependencies:\n" + dependency("cache", "1.x", indexRepository, ""),
			"chart/requirements.lock": "dependencies:\n" + dependency("cache", "1.4.2", indexRepository, "")},
			stacks.ComponentChoice{}, []string{"cache"}},
	} {
		req := chartRequest(t, c.files, nil)
		c.choice.Name = "shop"
		req.Choices.Components = []stacks.ComponentChoice{c.choice}
		if got := chartNames(neededCharts(t, req)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v; want %v", name, got, c.want)
		}
	}
}

var randomValue = regexp.MustCompile(`"random":"[^"]*"`)

// withoutRandom removes the random strings of chartFiles from objects, and their hashes.
func withoutRandom(result *stacks.Result) {
	for i := range result.Components[0].Objects {
		o := &result.Components[0].Objects[i]
		o.Manifest, o.Hash = randomValue.ReplaceAll(o.Manifest, nil), ""
	}
}

func chartNames(refs []stacks.ChartRef) (out []string) {
	for _, ref := range refs {
		out = append(out, ref.Name)
	}
	return out
}

// Fetched dependencies render to the same objects as vendored ones in charts/.
func TestFetchedDependenciesRenderLikeVendored(t *testing.T) {
	vendored := mergeFiles(umbrellaChart(bothDependencies, bothLocked), map[string]string{
		"chart/charts/cache-1.4.2.tgz": tgz(t, inFolder("cache", chartFiles("cache", "1.4.2", ""))),
		"chart/charts/web-2.5.0.tgz":   tgz(t, inFolder("web", chartFiles("web", "2.5.0", "")))})
	for name, c := range map[string]struct {
		values map[string]any
		want   []string
		// fetched are the charts that are fetched.
		fetched []string
	}{
		"all": {nil, []string{"back", "cache", "front", "shop"}, []string{"cache", "web"}},
		"disabled by a condition": {map[string]any{"cache": map[string]any{"enabled": false}},
			[]string{"back", "front", "shop"}, []string{"web"}},
		"disabled by a tag": {map[string]any{"tags": map[string]any{"face": false}}, []string{"cache", "shop"},
			[]string{"cache"}},
		"all disabled": {map[string]any{"tags": map[string]any{"face": false}, "cache": map[string]any{
			"enabled": false}}, []string{"shop"}, nil},
		"values of an alias": {map[string]any{"front": map[string]any{"size": 7},
			"global": map[string]any{"zone": "eu"}}, []string{"back", "cache", "front", "shop"},
			[]string{"cache", "web"}},
		"values of no dependency": {map[string]any{"web": map[string]any{"size": 7}},
			[]string{"back", "cache", "front", "shop"}, []string{"cache", "web"}},
	} {
		req := chartRequest(t, umbrellaChart(bothDependencies, bothLocked), c.values)
		fetchCharts(t, &req, bothFetched())
		got, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := stacks.Render(t.Context(), chartRequest(t, vendored, c.values))
		if err != nil {
			t.Fatalf("%s, vendored: %v", name, err)
		}
		if len(c.fetched) < 2 { // another digest of the chart derives other random strings
			withoutRandom(&got)
			withoutRandom(&want)
		}
		if !slices.Equal(objectNames(got), c.want) ||
			!reflect.DeepEqual(got.Components[0].Objects, want.Components[0].Objects) ||
			!reflect.DeepEqual(got.Warnings, want.Warnings) {
			t.Errorf("%s: %v\n%+v\nvendored\n%+v", name, objectNames(got), got, want)
		}
		from := []stacks.ChartRef{{Component: "shop", DependencyOf: "chart", Repository: indexRepository + "/",
			Name: "cache", Version: "1.4.2", Digest: storeDigest},
			{Component: "shop", DependencyOf: "chart", Repository: ociRepository, Name: "web", Version: "2.5.0",
				Digest: storeDigest}}
		from = slices.DeleteFunc(from, func(ref stacks.ChartRef) bool { return !slices.Contains(c.fetched, ref.Name) })
		if !slices.Equal(got.Components[0].ChartDependencies, from) || got.Components[0].Chart != nil ||
			want.Components[0].ChartDependencies != nil {
			t.Errorf("%s: %+v", name, got.Components[0].ChartDependencies)
		}
	}
}

func TestLocalDependenciesRender(t *testing.T) {
	local := dependency("common", "1.x", "file://../../lib/common", "") +
		dependency("common", ">=1.1.0", "file://../../lib/common/", ", alias: other")
	app := func(dependencies string) map[string]string {
		return mergeFiles(map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: apps/shop}}")},
			inFolder("apps/shop", chartFiles("shop", "1.0.0", "dependencies:\n"+dependencies)))
	}
	common := inFolder("lib/common", chartFiles("common", "1.2.0", ""))
	result, err := stacks.Render(t.Context(), chartRequest(t, mergeFiles(app(local), common), nil))
	if err != nil || !slices.Equal(objectNames(result), []string{"common", "other", "shop"}) {
		t.Errorf("%v, %v", objectNames(result), err)
	}
	if file := result.Components[0].Objects[0].File; file != "apps/shop/charts/common/templates/x.yaml" {
		t.Error(file)
	}
	// Together with a fetched dependency.
	files := mergeFiles(app(local+dependency("cache", "1.x", indexRepository, "")), common,
		map[string]string{"apps/shop/Chart.lock": "dependencies:\n" +
			dependency("cache", "1.4.2", indexRepository, "")})
	req := chartRequest(t, files, nil)
	fetchCharts(t, &req, bothFetched())
	if result, err = stacks.Render(t.Context(), req); err != nil ||
		!slices.Equal(objectNames(result), []string{"cache", "common", "other", "shop"}) {
		t.Errorf("%v, %v", objectNames(result), err)
	}
	for name, c := range map[string]struct {
		dependency string
		more       map[string]string
		want       string
	}{
		"outside":   {"file://../../../lib", nil, `the path "../../../lib" leaves the source; vendor it`},
		"absolute":  {"file:///lib/common", nil, `the path "/lib/common" is absolute`},
		"not there": {"file://../../lib/comon", nil, "there is no folder lib/comon in the source"},
		"a file": {"file://../../lib/common/Chart.yaml", nil,
			"there is no folder lib/common/Chart.yaml in the source"},
		"no chart": {"file://../../lib", nil, "lib: component \"shop\": there is no Chart.yaml"},
		"another chart": {"file://../../lib/other", inFolder("lib/other", chartFiles("other", "1.0.0", "")),
			"depends on common 1.x, but the chart in lib/other is other 1.0.0"},
		"another version": {"file://../../lib/two", inFolder("lib/two", chartFiles("common", "2.0.0", "")),
			"depends on common 1.x, but the chart in lib/two is common 2.0.0"},
		"with its own": {"file://../../lib/deep",
			inFolder("lib/deep",
				chartFiles("common", "1.0.0", "dependencies:\n"+dependency("cache", "1.x", indexRepository, ""))),
			"lib/deep/Chart.yaml: component \"shop\": the chart depends on cache, which is not in its folder " +
				"charts/; vendor it (helm dependency build) and commit it: a chart that is a file:// dependency must " +
				"vendor its own dependencies"},
		"in the way": {"file://../../lib/common", inFolder("apps/shop/charts/common-1.2.0",
			chartFiles("else", "1.0.0", "")),
			"the folder charts/common-1.2.0 of the chart conflicts with its dependency"},
	} {
		_, err := stacks.Render(t.Context(),
			chartRequest(t, mergeFiles(app(dependency("common", "1.x", c.dependency, "")), common, c.more), nil))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

func TestInvalidDependenciesAreRejected(t *testing.T) {
	one := func(version, repository string) string { return dependency("cache", version, repository, "") }
	for name, c := range map[string]struct {
		chart, lock string
		want        string
	}{
		"no lock": {one("1.x", indexRepository), "",
			`chart/Chart.yaml: component "shop": the chart depends on cache, which is not in its folder charts/, and there is no Chart.lock with its version; ` +
				"run helm dependency update and commit Chart.lock, or vendor it (helm dependency build) and commit it"},
		"not in the lock": {one("1.x", indexRepository), dependency("web", "1.0.0", indexRepository, ""),
			`chart/Chart.lock: component "shop": the file is out of sync with Chart.yaml: the chart depends on cache, but the file does not list it; run helm dependency update`},
		"of another repository": {one("1.x", indexRepository), one("1.0.0", ociRepository),
			"the file lists it from another repository"},
		"of a version out of range": {one("2.x", indexRepository), one("1.0.0", indexRepository),
			`the file lists version "1.0.0", which does not match "2.x"`},
		"a range in the lock": {one("1.x", indexRepository), one("1.x", indexRepository),
			`the file lists version "1.x", which does not match`},
		"a range that is none": {one("latest", indexRepository), one("1.0.0", indexRepository),
			`which does not match "latest"`},
		"a version that is not one": {one("1.x", indexRepository), one("1.2", indexRepository),
			`its version must be one exact version such as 1.4.0, not "1.2"`},
		"an empty lock": {one("1.x", indexRepository), "- ~\n", "the file does not list it"},
		"an alias of Helm's": {one("1.x", "@stable"), one("1.0.0", "@stable"),
			`of the repository "@stable", an alias that is only in a local Helm configuration; set the repository URL`},
		"another alias of Helm's": {one("1.x", "alias:stable"), one("1.0.0", "alias:stable"),
			`of the repository "alias:stable"`},
		"no repository": {one("1.x", ""), one("1.0.0", ""),
			"the chart depends on cache, which is not in its folder charts/; " +
				"vendor it (helm dependency build) and commit it"},
		"plain HTTP": {one("1.x", "http://charts.example.com"), one("1.0.0", "http://charts.example.com"),
			`stack.yaml:7: component "shop": field "helm.chart" names chart, whose dependency cache cannot be fetched: its repository URL must begin with https:// or oci://, not http://; correct Chart.yaml`},
		"a password": {one("1.x", "https://me:hunter2@charts.example.com"),
			one("1.0.0", "https://me:hunter2@charts.example.com"), "must not contain a user or password"},
		"a name with more": {dependency("../cache", "1.x", ociRepository, ""),
			dependency("../cache", "1.0.0", ociRepository, ""), "its name must be a chart name"},
		"aliases": {one("1.x", indexRepository) + "annotations: {a: &a x, b: *a}\n",
			one("1.0.0", indexRepository), "Chart.yaml:6: component \"shop\": this is a YAML alias"},
		"aliases in a lock": {one("1.x", indexRepository),
			"- &a {name: cache, version: 1.0.0, repository: 'https://charts.example.com'}\n- *a\n",
			"Chart.lock:3: component \"shop\": this is a YAML alias"},
	} {
		req := chartRequest(t, umbrellaChart(c.chart, c.lock), nil)
		_, err := stacks.Render(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the password: %v", name, err)
		}
		if refs, err := stacks.RequiredCharts(req); err != nil || len(refs) > 0 {
			t.Errorf("%s: %v, %v", name, refs, err)
		}
	}
}

// The number of dependencies to fetch for the charts of one stack is bounded.
func TestDependencyCountIsBounded(t *testing.T) {
	var many, locks string
	for i := range 129 {
		many, locks = many+dependency(fmt.Sprint("c", i), "1.x", indexRepository, ""),
			locks+dependency(fmt.Sprint("c", i), "1.0.0", indexRepository, "")
	}
	files := umbrellaChart(many, locks)
	if refs, err := stacks.RequiredCharts(chartRequest(t, files, nil)); err != nil || len(refs) != 129 {
		t.Errorf("%d, %v", len(refs), err)
	}
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}", "- {name: again, helm: {chart: chart}}")
	req := chartRequest(t, files, nil)
	if refs, err := stacks.RequiredCharts(req); err != nil || len(refs) > 0 {
		t.Errorf("%d, %v", len(refs), err)
	}
	if _, err := stacks.Render(t.Context(), req); err == nil ||
		!strings.Contains(err.Error(),
			`component "again": field "helm.chart" names chart, with which the charts in the source have more than 256 dependencies to fetch`) {
		t.Error(err)
	}
}

func TestInvalidFetchedDependenciesAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		cache  map[string]string
		change func(*stacks.Request)
		want   string
	}{
		"nothing was fetched": {chartFiles("cache", "1.4.2", ""), func(r *stacks.Request) { r.Charts = nil },
			"chart cache 1.4.2 of https://charts.example.com/ (which chart depends on) was not fetched"},
		"one was not fetched": {chartFiles("cache", "1.4.2", ""), func(r *stacks.Request) {
			r.Charts = r.Charts[:1]
		}, "chart web 2.5.0 of oci://registry.example.com/charts (which chart depends on) was not fetched"},
		"another version": {chartFiles("cache", "1.4.2", ""), func(r *stacks.Request) {
			r.Charts[0].Version = "1.4.1"
		}, "was not fetched"},
		"for another chart": {chartFiles("cache", "1.4.2", ""), func(r *stacks.Request) {
			r.Charts[0].DependencyOf = ""
		}, "was not fetched"},
		"another version inside": {chartFiles("cache", "1.4.1", ""), nil,
			"the repository https://charts.example.com/ returned chart cache 1.4.1 for cache 1.4.2, " +
				"which the chart depends on"},
		"another chart inside": {chartFiles("cash", "1.4.2", ""), nil, "returned chart cash 1.4.2"},
		"no chart":             {map[string]string{"x": ""}, nil, "there is no Chart.yaml"},
		"a dependency of its own": {chartFiles("cache", "1.4.2", "dependencies:\n"+
			dependency("x", "1.x", indexRepository, "")), nil,
			`chart/charts/cache-1.4.2/Chart.yaml: component "shop": the chart depends on x, which is not in the archive; ask the publisher to include it`},
		"values against its schema": {mergeFiles(chartFiles("cache", "1.4.2", ""),
			map[string]string{"values.schema.json": `{"properties":{"size":{"type":"string"}}}`}), nil, `"cache.size"`},
		"more bytes than allowed": {mergeFiles(chartFiles("cache", "1.4.2", ""), map[string]string{
			"a": strings.Repeat("x", 15<<20), "b": strings.Repeat("x", 15<<20), "c": strings.Repeat("x", 15<<20),
			"d": strings.Repeat("x", 15<<20), "e": strings.Repeat("x", 5<<20)}), nil, "(--chart-max-bytes)"},
	} {
		req := chartRequest(t, umbrellaChart(bothDependencies, bothLocked), nil)
		fetchCharts(t, &req, map[string]map[string]string{"cache": c.cache, "web": chartFiles("web", "2.5.0", "")})
		if c.change != nil {
			c.change(&req)
		}
		if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	// A dependency may be a library chart, which does not render by itself.
	req := chartRequest(t, umbrellaChart(bothDependencies, bothLocked), nil)
	fetchCharts(t, &req, map[string]map[string]string{"cache": chartFiles("cache", "1.4.2", "type: library\n"),
		"web": chartFiles("web", "2.5.0", "")})
	if result, err := stacks.Render(t.Context(), req); err != nil ||
		!slices.Equal(objectNames(result), []string{"back", "front", "shop"}) {
		t.Errorf("a library: %v, %v", objectNames(result), err)
	}
	// An archive must include its dependencies, with or without a lock.
	archive := tgz(t,
		map[string]string{"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n" +
			dependency("cache", "1.x", indexRepository, ""), "shop/Chart.lock": "dependencies:\n" +
			dependency("cache", "1.4.2", indexRepository, "")})
	req = chartRequest(t,
		map[string]string{"chart.tgz": archive, "stack.yaml": components("- {name: shop, helm: {chart: chart.tgz}}")},
		nil)
	if refs, err := stacks.RequiredCharts(req); err != nil || len(refs) > 0 {
		t.Errorf("an archive: %v, %v", refs, err)
	}
	if _, err := stacks.Render(t.Context(), req); err == nil ||
		!strings.Contains(err.Error(),
			"the chart depends on cache, which is not in the archive; package the chart again") {
		t.Errorf("an archive: %v", err)
	}
}

func TestWithoutChartsSkipsChartsWithMissingDependencies(t *testing.T) {
	req := chartRequest(t, umbrellaChart(bothDependencies, bothLocked), map[string]any{"any": 1})
	req.WithoutCharts = true
	result, err := stacks.Render(t.Context(), req)
	if err != nil || len(result.Components) != 1 || len(result.Components[0].Objects) != 0 ||
		result.Components[0].Version != "1.0.0" {
		t.Fatalf("%+v, %v", result, err)
	}
	want := []string{
		`component "shop": chart cache 1.4.2 of https://charts.example.com/ (which chart depends on) is not fetched here, so neither chart nor its values are checked`,
		`component "shop": chart web 2.5.0 of oci://registry.example.com/charts (which chart depends on) is not fetched here, so neither chart nor its values are checked`}
	if !slices.Equal(result.Warnings, want) {
		t.Errorf("%q", result.Warnings)
	}
	if _, err := stacks.Load(req.Root, "", "demo"); err != nil {
		t.Errorf("Load must not need fetched charts: %v", err)
	}
}

// With two versions of a chart, each dependency always uses the newest version in its range.
func TestNewestAllowedDependencyIsUsed(t *testing.T) {
	files := umbrellaChart(dependency("web", ">=1.0.0", indexRepository, ", alias: new")+
		dependency("web", "1.x", indexRepository, ", alias: old"),
		dependency("web", "10.0.0", indexRepository, "")+dependency("web", "1.5.0", indexRepository, ""))
	req := chartRequest(t, files, nil)
	refs, err := stacks.RequiredCharts(req)
	if err != nil || len(refs) != 2 {
		t.Fatalf("%+v, %v", refs, err)
	}
	for _, ref := range refs {
		req.Charts = append(req.Charts,
			stacks.FetchedChart{ChartRef: ref, Root: writeTree(t, inFolder("web", chartFiles("web", ref.Version, "")))})
	}
	for i := range 20 {
		files["chart/note.txt"] = fmt.Sprint(i) // changes the digest of the chart
		req.Root = writeTree(t, files)
		result, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range result.Components[0].Objects {
			if want := map[string]string{"new": "10.0.0", "old": "1.5.0",
				"shop": "1.0.0"}[o.Name]; !strings.Contains(string(o.Manifest), `"version":"`+want+`"`) {
				t.Fatalf("%s is %s, want version %s", o.Name, o.Manifest, want)
			}
		}
	}
}

// With two vendored charts of the same name and version, always the same one is used.
func TestDuplicateDependencyChoiceIsDeterministic(t *testing.T) {
	twin := chartFiles("web", "1.0.0", "")
	twin["templates/x.yaml"] = strings.Replace(twin["templates/x.yaml"], "{{ .Chart.Version }}", "twin", 1)
	built := chartFiles("web", "1.0.0+build", "")
	for name, other := range map[string]map[string]string{"edited": twin, "another build": built} {
		files := mergeFiles(umbrellaChart(dependency("web", "1.x", indexRepository, ""), ""),
			inFolder("chart/charts/a", chartFiles("web", "1.0.0", "")), inFolder("chart/charts/b", other))
		taken := map[string]int{}
		for i := range 40 {
			files["chart/note.txt"] = fmt.Sprint(i) // changes the digest of the chart
			result, err := stacks.Render(t.Context(), chartRequest(t, files, nil))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, o := range result.Components[0].Objects {
				if o.Name == "web" {
					version, _, _ := strings.Cut(string(o.Manifest), `"kind"`)
					_, version, _ = strings.Cut(version, `"version":`)
					taken[version]++
				}
			}
		}
		if len(taken) != 1 {
			t.Errorf("%s: different charts were used: %v", name, taken)
		}
	}
}

// A dependency that the values disable is neither fetched nor required, whatever is wrong with it.
func TestDisabledDependenciesAreNotRequired(t *testing.T) {
	const off = "cache: {enabled: false}\n"
	condition := ", condition: cache.enabled"
	nested := inFolder("chart/charts/common", chartFiles("common", "1.0.0", ""))
	for name, c := range map[string]struct {
		files map[string]string
		want  string // of the error if it is enabled
	}{
		"no lock": {umbrellaChart(dependency("cache", "1.x", indexRepository, condition), ""),
			`chart/Chart.yaml: component "shop": the chart depends on cache, which is not in its folder charts/, ` +
				"and there is no Chart.lock"},
		"an alias of Helm's": {umbrellaChart(dependency("cache", "1.x", "@stable", condition), ""),
			`of the repository "@stable"`},
		"plain HTTP": {umbrellaChart(dependency("cache", "1.x", "http://charts.example.com", condition),
			dependency("cache", "1.0.0", "http://charts.example.com", "")),
			"names chart, whose dependency cache cannot be fetched: its repository URL must begin with https://"},
		"no folder": {umbrellaChart(dependency("cache", "1.x", "file://../cache", condition), ""),
			"there is no folder cache in the source"},
		"a local chart with its own": {mergeFiles(
			umbrellaChart(dependency("common", "1.x", "file://../common", ""), ""),
			inFolder("common", chartFiles("common", "1.0.0", "dependencies:\n"+
				dependency("cache", "1.x", indexRepository, condition))), map[string]string{
				"common/values.yaml": off}), `common/Chart.yaml: component "shop": the chart depends on cache, which ` +
			"is not in its folder charts/"},
		"an archive": {map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: chart.tgz}}"),
			"chart.tgz": tgz(t, inFolder("shop", mergeFiles(chartFiles("shop", "1.0.0", "dependencies:\n"+
				dependency("cache", "1.x", indexRepository, condition)), map[string]string{"values.yaml": off})))},
			"the chart depends on cache, which is not in the archive"},
		"not fetched": {mergeFiles(umbrellaChart(dependency("cache", "1.x", indexRepository, condition),
			dependency("cache", "1.4.2", indexRepository, "")), nested),
			"chart cache 1.4.2 of https://charts.example.com (which chart depends on) was not fetched"},
	} {
		if c.files["chart/values.yaml"] != "" {
			c.files["chart/values.yaml"] = off
		}
		result, err := stacks.Render(t.Context(), chartRequest(t, c.files, nil))
		if err != nil || slices.Contains(objectNames(result), "cache") {
			t.Errorf("%s: %v, %v", name, objectNames(result), err)
		}
		values := map[string]any{"cache": map[string]any{"enabled": true}}
		if strings.Contains(name, "local") {
			values = map[string]any{"common": values}
		}
		if _, err = stacks.Render(t.Context(), chartRequest(t, c.files, values)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

// The charts that a render lacks are cached like a result: for the same files, they are returned
// without another render.
func TestRendererCachesMissingCharts(t *testing.T) {
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{
		Render: func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
			renders++
			return stacks.Render(ctx, req)
		},
		OnRender: func(_ stacks.Request, _ time.Duration, err error) {
			if err != nil {
				t.Errorf("a render that lacks charts counts as failed: %v", err)
			}
		},
	})
	req := chartRequest(t, umbrellaChart(bothDependencies, bothLocked), nil)
	for _, revision := range []string{"one", "one", "two"} {
		req.Digest = revision
		_, err := r.Render(t.Context(), req)
		missing, ok := errors.AsType[*stacks.MissingChartsError](err)
		if !ok || !slices.Equal(chartNames(missing.Charts), []string{"cache", "web"}) || missing.Stack != "demo" {
			t.Errorf("%s: %v", revision, err)
		}
	}
	if renders != 1 {
		t.Errorf("%d renders", renders)
	}
	fetchCharts(t, &req, bothFetched())
	if result, err := r.Render(t.Context(), req); err != nil || len(objectNames(result)) != 4 {
		t.Errorf("%v, %v", objectNames(result), err)
	}
}
