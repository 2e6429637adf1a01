package stacks_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const (
	indexed  = "https://charts.example.com"
	registry = "oci://registry.example.com/charts"
)

// part is a chart that others depend on, as it lies in its folder.
func part(name, version, more string) map[string]string {
	return map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n" + more,
		"values.yaml":      "size: 1\n",
		"templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {version: {{ .Chart.Version }}, values: {{ .Values | toJson | quote }}, random: {{ randAlpha 8 }}}\n",
	}
}

// below puts files into a folder.
func below(folder string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[folder+"/"+name] = text
	}
	return out
}

func together(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, files := range all {
		maps.Copy(out, files)
	}
	return out
}

// umbrella is a chart in the folder "chart" of a source that depends on others, with
// what it locked, "" for no Chart.lock.
func umbrella(dependencies, lock string) map[string]string {
	files := below("chart", part("shop", "1.0.0", "dependencies:\n"+dependencies))
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}")
	if lock != "" {
		files["chart/Chart.lock"] = "dependencies:\n" + lock + "digest: sha256:" + strings.Repeat("0", 64) + "\ngenerated: \"2026-01-02T03:04:05Z\"\n"
	}
	return files
}

func dependency(name, version, repository, more string) string {
	return fmt.Sprintf("- {name: %s, version: %q, repository: %q%s}\n", name, version, repository, more)
}

// bothDependencies are of an index and of a registry, with everything that Helm knows
// of a dependency.
var (
	bothDependencies = dependency("cache", "^1.0.0", indexed+"/", ", condition: cache.enabled") + dependency("web", "2.x", registry, ", alias: front, tags: [face]") +
		dependency("web", "2.x", registry, ", alias: back, tags: [face]")
	bothLocked = dependency("cache", "1.4.2", indexed, "") + dependency("web", "2.5.0", registry, "") + dependency("web", "2.5.0", registry, "")
)

func bothFetched() map[string]map[string]string {
	return map[string]map[string]string{"cache": part("cache", "1.4.2", ""), "web": part("web", "2.5.0", "")}
}

// fetchParts answers stacks.Charts with charts by name.
func fetchParts(t testing.TB, req *stacks.Request, parts map[string]map[string]string) {
	t.Helper()
	refs, err := stacks.Charts(*req)
	if err != nil {
		t.Fatal(err)
	}
	req.Charts = nil
	for _, ref := range refs {
		ref.Digest = storeDigest
		req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref, Root: writeTree(t, below(ref.Name, parts[ref.Name]))})
	}
}

func requestOf(t testing.TB, files map[string]string, values map[string]any) stacks.Request {
	t.Helper()
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
	if values != nil {
		req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Override: map[string]any{"values": values}}}
	}
	return req
}

func TestChartsThatAChartDependsOn(t *testing.T) {
	refs, err := stacks.Charts(requestOf(t, umbrella(bothDependencies, bothLocked), nil))
	want := []stacks.ChartRef{{Component: "shop", DependencyOf: "chart", Repository: indexed + "/", Name: "cache", Version: "1.4.2"},
		{Component: "shop", DependencyOf: "chart", Repository: registry, Name: "web", Version: "2.5.0"}}
	if err != nil || !reflect.DeepEqual(refs, want) {
		t.Errorf("%+v, %v", refs, err)
	}
	off := false
	packed := tgz(t, below("cache", part("cache", "1.4.2", "")))
	for name, c := range map[string]struct {
		files  map[string]string
		choice stacks.ComponentChoice
		want   []string
	}{
		"vendored as an archive": {together(umbrella(bothDependencies, bothLocked), map[string]string{"chart/charts/cache-1.4.2.tgz": packed}), stacks.ComponentChoice{}, []string{"web"}},
		"vendored as a folder":   {together(umbrella(bothDependencies, bothLocked), below("chart/charts/anything", part("web", "2.5.0", ""))), stacks.ComponentChoice{}, []string{"cache"}},
		"in a folder that Helm ignores": {together(umbrella(bothDependencies, bothLocked), below("chart/charts/_web", part("web", "2.5.0", "")),
			map[string]string{"chart/charts/cache-1.4.2.tgz": packed, "chart/.helmignore": "charts/*.tgz\n"}), stacks.ComponentChoice{}, []string{"cache", "web"}},
		"no lock":                 {umbrella(bothDependencies, ""), stacks.ComponentChoice{}, nil},
		"nothing to depend on":    {umbrella("", ""), stacks.ComponentChoice{}, nil},
		"disabled":                {umbrella(bothDependencies, bothLocked), stacks.ComponentChoice{Enabled: &off}, nil},
		"disabled by a condition": {umbrella(bothDependencies, bothLocked), stacks.ComponentChoice{Override: map[string]any{"values": map[string]any{"cache": map[string]any{"enabled": false}}}}, []string{"cache", "web"}},
		"Helm 2": {map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: chart}}"), "chart/Chart.yaml": "apiVersion: v1\nname: shop\nversion: 1.0.0\n",
			"chart/requirements.yaml": "dependencies:\n" + dependency("cache", "1.x", indexed, ""), "chart/requirements.lock": "dependencies:\n" + dependency("cache", "1.4.2", indexed, "")}, stacks.ComponentChoice{}, []string{"cache"}},
	} {
		req := requestOf(t, c.files, nil)
		c.choice.Name = "shop"
		req.Choices.Components = []stacks.ComponentChoice{c.choice}
		refs, err := stacks.Charts(req)
		var got []string
		for _, r := range refs {
			got = append(got, r.Name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// What is fetched renders to what it would if it were packed in charts/.
func TestDependenciesRenderAsIfVendored(t *testing.T) {
	vendored := together(umbrella(bothDependencies, bothLocked), map[string]string{
		"chart/charts/cache-1.4.2.tgz": tgz(t, below("cache", part("cache", "1.4.2", ""))), "chart/charts/web-2.5.0.tgz": tgz(t, below("web", part("web", "2.5.0", "")))})
	for name, c := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"all":                      {nil, []string{"back", "cache", "front", "shop"}},
		"disabled by a condition":  {map[string]any{"cache": map[string]any{"enabled": false}}, []string{"back", "front", "shop"}},
		"disabled by a tag":        {map[string]any{"tags": map[string]any{"face": false}}, []string{"cache", "shop"}},
		"values of an alias":       {map[string]any{"front": map[string]any{"size": 7}, "global": map[string]any{"zone": "eu"}}, []string{"back", "cache", "front", "shop"}},
		"values that nobody knows": {map[string]any{"web": map[string]any{"size": 7}}, []string{"back", "cache", "front", "shop"}},
	} {
		req := requestOf(t, umbrella(bothDependencies, bothLocked), c.values)
		fetchParts(t, &req, bothFetched())
		got, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := stacks.Render(t.Context(), requestOf(t, vendored, c.values))
		if err != nil {
			t.Fatalf("%s, vendored: %v", name, err)
		}
		if !slices.Equal(names(got), c.want) || !reflect.DeepEqual(got.Components[0].Objects, want.Components[0].Objects) || !reflect.DeepEqual(got.Warnings, want.Warnings) {
			t.Errorf("%s: %v\n%+v\nvendored\n%+v", name, names(got), got, want)
		}
		from := []stacks.ChartRef{{Component: "shop", DependencyOf: "chart", Repository: indexed + "/", Name: "cache", Version: "1.4.2", Digest: storeDigest},
			{Component: "shop", DependencyOf: "chart", Repository: registry, Name: "web", Version: "2.5.0", Digest: storeDigest}}
		if !reflect.DeepEqual(got.Components[0].ChartDependencies, from) || got.Components[0].Chart != nil || want.Components[0].ChartDependencies != nil {
			t.Errorf("%s: %+v", name, got.Components[0].ChartDependencies)
		}
	}
}

func TestDependenciesInTheSource(t *testing.T) {
	local := dependency("common", "1.x", "file://../../lib/common", "") + dependency("common", ">=1.1.0", "file://../../lib/common/", ", alias: other")
	app := func(dependencies string) map[string]string {
		return together(map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: apps/shop}}")}, below("apps/shop", part("shop", "1.0.0", "dependencies:\n"+dependencies)))
	}
	common := below("lib/common", part("common", "1.2.0", ""))
	result, err := stacks.Render(t.Context(), requestOf(t, together(app(local), common), nil))
	if err != nil || !slices.Equal(names(result), []string{"common", "other", "shop"}) {
		t.Errorf("%v, %v", names(result), err)
	}
	if file := result.Components[0].Objects[0].File; file != "apps/shop/charts/common/templates/x.yaml" {
		t.Error(file)
	}
	// Beside one that is fetched.
	files := together(app(local+dependency("cache", "1.x", indexed, "")), common, map[string]string{"apps/shop/Chart.lock": "dependencies:\n" + dependency("cache", "1.4.2", indexed, "")})
	req := requestOf(t, files, nil)
	fetchParts(t, &req, bothFetched())
	if result, err = stacks.Render(t.Context(), req); err != nil || !slices.Equal(names(result), []string{"cache", "common", "other", "shop"}) {
		t.Errorf("%v, %v", names(result), err)
	}
	for name, c := range map[string]struct {
		dependency string
		more       map[string]string
		want       string
	}{
		"outside":         {"file://../../../lib", nil, `the path "../../../lib" leaves the source; vendor it`},
		"absolute":        {"file:///lib/common", nil, `the path "/lib/common" is absolute`},
		"not there":       {"file://../../lib/comon", nil, "there is no folder lib/comon in the source"},
		"a file":          {"file://../../lib/common/Chart.yaml", nil, "there is no folder lib/common/Chart.yaml in the source"},
		"no chart":        {"file://../../lib", nil, "lib: component \"shop\": there is no Chart.yaml"},
		"another chart":   {"file://../../lib/other", below("lib/other", part("other", "1.0.0", "")), "depends on common 1.x, and the chart in lib/other is other 1.0.0"},
		"another version": {"file://../../lib/two", below("lib/two", part("common", "2.0.0", "")), "depends on common 1.x, and the chart in lib/two is common 2.0.0"},
		"with its own": {"file://../../lib/deep", below("lib/deep", part("common", "1.0.0", "dependencies:\n"+dependency("cache", "1.x", indexed, ""))),
			"lib/deep/Chart.yaml: component \"shop\": the chart depends on cache, which is not in its folder charts/; vendor it (helm dependency build) and commit it: what another chart takes by file:// has to bring what it depends on"},
		"in the way": {"file://../../lib/common", below("apps/shop/charts/common-1.2.0", part("else", "1.0.0", "")), "the folder charts/common-1.2.0 of the chart is in the way"},
	} {
		_, err := stacks.Render(t.Context(), requestOf(t, together(app(dependency("common", "1.x", c.dependency, "")), common, c.more), nil))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

func TestDependencyRefusals(t *testing.T) {
	one := func(version, repository string) string { return dependency("cache", version, repository, "") }
	for name, c := range map[string]struct {
		chart, lock string
		want        string
	}{
		"no lock": {one("1.x", indexed), "", `chart/Chart.yaml: component "shop": the chart depends on cache, which is not in its folder charts/, and there is no Chart.lock that says in which version; ` +
			"run helm dependency update and commit Chart.lock, or vendor it (helm dependency build) and commit it"},
		"not in the lock":           {one("1.x", indexed), dependency("web", "1.0.0", indexed, ""), `chart/Chart.lock: component "shop": this is out of step with Chart.yaml: the chart depends on cache, and this file does not have it; run helm dependency update`},
		"of another repository":     {one("1.x", indexed), one("1.0.0", registry), "this file has it of another repository"},
		"of a version out of range": {one("2.x", indexed), one("1.0.0", indexed), `this file has version "1.0.0" of it where "2.x" is wanted`},
		"a range in the lock":       {one("1.x", indexed), one("1.x", indexed), `this file has version "1.x" of it where`},
		"a range that is none":      {one("latest", indexed), one("1.0.0", indexed), `where "latest" is wanted`},
		"a version that is not one": {one("1.x", indexed), one("1.2", indexed), `its version must be one exact version such as 1.4.0, not "1.2"`},
		"an empty lock":             {one("1.x", indexed), "- ~\n", "this file does not have it"},
		"an alias of Helm's":        {one("1.x", "@stable"), one("1.0.0", "@stable"), `of the repository "@stable", a name that only the helm of one machine knows; write the repository's address`},
		"another alias of Helm's":   {one("1.x", "alias:stable"), one("1.0.0", "alias:stable"), `of the repository "alias:stable"`},
		"no repository":             {one("1.x", ""), one("1.0.0", ""), "the chart depends on cache, which is not in its folder charts/; vendor it (helm dependency build) and commit it"},
		"plain HTTP": {one("1.x", "http://charts.example.com"), one("1.0.0", "http://charts.example.com"),
			`stack.yaml:7: component "shop": field "helm.chart" names chart, whose dependency cache can't be fetched: the address of its repository must begin with https:// or oci://, not http://; correct Chart.yaml`},
		"a password":       {one("1.x", "https://me:hunter2@charts.example.com"), one("1.0.0", "https://me:hunter2@charts.example.com"), "must not hold a user or a password"},
		"a name with more": {dependency("../cache", "1.x", registry, ""), dependency("../cache", "1.0.0", registry, ""), "its name must be that of a chart"},
		"aliases":          {one("1.x", indexed) + "annotations: {a: &a x, b: *a}\n", one("1.0.0", indexed), "Chart.yaml:6: component \"shop\": this is a YAML alias"},
		"aliases in a lock": {one("1.x", indexed), "- &a {name: cache, version: 1.0.0, repository: 'https://charts.example.com'}\n- *a\n",
			"Chart.lock:3: component \"shop\": this is a YAML alias"},
	} {
		req := requestOf(t, umbrella(c.chart, c.lock), nil)
		_, err := stacks.Render(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a password is told: %v", name, err)
		}
		if refs, err := stacks.Charts(req); err != nil || len(refs) > 0 {
			t.Errorf("%s: %v, %v", name, refs, err)
		}
	}
}

// What is fetched for the charts of one stack is bounded.
func TestTooManyDependencies(t *testing.T) {
	var many, locks string
	for i := range 129 {
		many, locks = many+dependency(fmt.Sprint("c", i), "1.x", indexed, ""), locks+dependency(fmt.Sprint("c", i), "1.0.0", indexed, "")
	}
	files := umbrella(many, locks)
	if refs, err := stacks.Charts(requestOf(t, files, nil)); err != nil || len(refs) != 129 {
		t.Errorf("%d, %v", len(refs), err)
	}
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}", "- {name: again, helm: {chart: chart}}")
	req := requestOf(t, files, nil)
	if refs, err := stacks.Charts(req); err != nil || len(refs) > 0 {
		t.Errorf("%d, %v", len(refs), err)
	}
	if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), `component "again": field "helm.chart" names chart, with whose dependencies more than 256 charts would have to be fetched`) {
		t.Error(err)
	}
}

func TestFetchedDependencyRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		cache  map[string]string
		change func(*stacks.Request)
		want   string
	}{
		"nothing was fetched": {part("cache", "1.4.2", ""), func(r *stacks.Request) { r.Charts = nil },
			"chart cache 1.4.2 of https://charts.example.com/ (which chart depends on) was not fetched"},
		"one was not fetched":        {part("cache", "1.4.2", ""), func(r *stacks.Request) { r.Charts = r.Charts[:1] }, "chart web 2.5.0 of oci://registry.example.com/charts (which chart depends on) was not fetched"},
		"another version":            {part("cache", "1.4.2", ""), func(r *stacks.Request) { r.Charts[0].Version = "1.4.1" }, "was not fetched"},
		"for another chart":          {part("cache", "1.4.2", ""), func(r *stacks.Request) { r.Charts[0].DependencyOf = "" }, "was not fetched"},
		"another version inside":     {part("cache", "1.4.1", ""), nil, "the repository https://charts.example.com/ gives the chart cache 1.4.1 for cache 1.4.2, which the chart depends on"},
		"another chart inside":       {part("cash", "1.4.2", ""), nil, "gives the chart cash 1.4.2"},
		"no chart":                   {map[string]string{"x": ""}, nil, "there is no Chart.yaml"},
		"a dependency of its own":    {part("cache", "1.4.2", "dependencies:\n"+dependency("x", "1.x", indexed, "")), nil, `chart/charts/cache-1.4.2/Chart.yaml: component "shop": the chart depends on x, which is not packed with it; who publishes it has to`},
		"values that it does not do": {together(part("cache", "1.4.2", ""), map[string]string{"values.schema.json": `{"properties":{"size":{"type":"string"}}}`}), nil, `"cache.size"`},
		"more than a chart may have": {together(part("cache", "1.4.2", ""), map[string]string{
			"a": strings.Repeat("x", 15<<20), "b": strings.Repeat("x", 15<<20), "c": strings.Repeat("x", 15<<20), "d": strings.Repeat("x", 15<<20), "e": strings.Repeat("x", 5<<20)}), nil, "(--chart-max-bytes)"},
	} {
		req := requestOf(t, umbrella(bothDependencies, bothLocked), nil)
		fetchParts(t, &req, map[string]map[string]string{"cache": c.cache, "web": part("web", "2.5.0", "")})
		if c.change != nil {
			c.change(&req)
		}
		if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	// What one may depend on need not render by itself.
	req := requestOf(t, umbrella(bothDependencies, bothLocked), nil)
	fetchParts(t, &req, map[string]map[string]string{"cache": part("cache", "1.4.2", "type: library\n"), "web": part("web", "2.5.0", "")})
	if result, err := stacks.Render(t.Context(), req); err != nil || !slices.Equal(names(result), []string{"back", "front", "shop"}) {
		t.Errorf("a library: %v, %v", names(result), err)
	}
	// An archive has to bring what it depends on, lock or not.
	archive := tgz(t, map[string]string{"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n" + dependency("cache", "1.x", indexed, ""), "shop/Chart.lock": "dependencies:\n" + dependency("cache", "1.4.2", indexed, "")})
	req = requestOf(t, map[string]string{"chart.tgz": archive, "stack.yaml": components("- {name: shop, helm: {chart: chart.tgz}}")}, nil)
	if refs, err := stacks.Charts(req); err != nil || len(refs) > 0 {
		t.Errorf("an archive: %v, %v", refs, err)
	}
	if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), "the chart depends on cache, which is not packed with it; pack it") {
		t.Errorf("an archive: %v", err)
	}
}

func TestWithoutDependencies(t *testing.T) {
	req := requestOf(t, umbrella(bothDependencies, bothLocked), map[string]any{"any": 1})
	req.WithoutCharts = true
	result, err := stacks.Render(t.Context(), req)
	if err != nil || len(result.Components) != 1 || len(result.Components[0].Objects) != 0 || result.Components[0].Version != "1.0.0" {
		t.Fatalf("%+v, %v", result, err)
	}
	want := []string{`component "shop": chart cache 1.4.2 of https://charts.example.com/ (which chart depends on) is not fetched here, so neither chart nor its values are checked`,
		`component "shop": chart web 2.5.0 of oci://registry.example.com/charts (which chart depends on) is not fetched here, so neither chart nor its values are checked`}
	if !slices.Equal(result.Warnings, want) {
		t.Errorf("%q", result.Warnings)
	}
	if _, err := stacks.Load(req.Root, "", "demo"); err != nil {
		t.Errorf("loading needs nothing fetched: %v", err)
	}
}

// Of two charts of one name, a dependency gets the newest that it allows, each time.
func TestTwoVersionsOfADependency(t *testing.T) {
	files := umbrella(dependency("web", ">=1.0.0", indexed, ", alias: new")+dependency("web", "1.x", indexed, ", alias: old"),
		dependency("web", "10.0.0", indexed, "")+dependency("web", "1.5.0", indexed, ""))
	req := requestOf(t, files, nil)
	refs, err := stacks.Charts(req)
	if err != nil || len(refs) != 2 {
		t.Fatalf("%+v, %v", refs, err)
	}
	for _, ref := range refs {
		req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref, Root: writeTree(t, below("web", part("web", ref.Version, "")))})
	}
	for i := range 20 {
		files["chart/note.txt"] = fmt.Sprint(i) // another chart, for what is kept of charts
		req.Root = writeTree(t, files)
		result, err := stacks.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range result.Components[0].Objects {
			if want := map[string]string{"new": "10.0.0", "old": "1.5.0", "shop": "1.0.0"}[o.Name]; !strings.Contains(string(o.Manifest), `"version":"`+want+`"`) {
				t.Fatalf("%s is %s, not %s", o.Name, o.Manifest, want)
			}
		}
	}
}

// What an edit or a build left beside it under the same version is not taken by chance.
func TestTwinsOfADependency(t *testing.T) {
	twin := part("web", "1.0.0", "")
	twin["templates/x.yaml"] = strings.Replace(twin["templates/x.yaml"], "{{ .Chart.Version }}", "twin", 1)
	built := part("web", "1.0.0+build", "")
	for name, other := range map[string]map[string]string{"edited": twin, "another build": built} {
		files := together(umbrella(dependency("web", "1.x", indexed, ""), ""), below("chart/charts/a", part("web", "1.0.0", "")), below("chart/charts/b", other))
		taken := map[string]int{}
		for i := range 40 {
			files["chart/note.txt"] = fmt.Sprint(i) // another chart, for what is kept of charts
			result, err := stacks.Render(t.Context(), requestOf(t, files, nil))
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
			t.Errorf("%s: taken are %v", name, taken)
		}
	}
}
