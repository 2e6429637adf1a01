package stacks_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const fromRepository = "- {name: shop, version: 1.2.3, helm: {repository: 'https://charts.example.com', name: store, " +
	"digest: '%s', values: {size: 1}}}"

var storeDigest = "sha256:" + strings.Repeat("ab", 32)

// storeChart returns the files of an unpacked chart archive.
func storeChart(version string, more map[string]string) map[string]string {
	out := map[string]string{
		"store/Chart.yaml":  "apiVersion: v2\nname: store\nversion: " + version + "\n",
		"store/values.yaml": "size: 0\nextra: 0\n",
		"store/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" +
			"data: {size: {{ .Values.size | quote }}}\n",
	}
	for name, text := range more {
		out[name] = text
	}
	return out
}

func fetchRequest(t testing.TB, digest string) stacks.Request {
	t.Helper()
	return stacks.Request{Root: writeTree(t,
		map[string]string{"stack.yaml": components(fmt.Sprintf(fromRepository, digest))}),
		Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
}

// fetch sets req.Charts to what stacks.RequiredCharts returns, like a fetcher.
func fetch(t testing.TB, req *stacks.Request, files map[string]string) {
	t.Helper()
	refs, err := stacks.RequiredCharts(*req)
	if err != nil {
		t.Fatal(err)
	}
	req.Charts = nil
	for _, ref := range refs {
		ref.Digest = storeDigest
		req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref, Root: writeTree(t, files)})
	}
}

func TestFetchedChartRenders(t *testing.T) {
	req := fetchRequest(t, storeDigest)
	fetch(t, &req, storeChart("1.2.3", map[string]string{".hidden/x": "", "store/.helmignore": "templates\n"}))
	if _, err := stacks.Render(t.Context(), req); err == nil ||
		!strings.Contains(err.Error(), "it must have exactly one folder") {
		t.Errorf("two folders: %v", err)
	}
	// The .helmignore does not apply to files in an archive.
	fetch(t, &req, storeChart("1.2.3", map[string]string{"store/.helmignore": "templates\n"}))
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	c := result.Components[0]
	want := &stacks.ChartRef{Component: "shop", Repository: "https://charts.example.com", Name: "store",
		Version: "1.2.3", Digest: storeDigest}
	if !reflect.DeepEqual(c.Chart, want) || c.Version != "1.2.3" || len(c.Objects) != 1 {
		t.Errorf("%+v", c)
	}
	if o := c.Objects[0]; o.File != "store-1.2.3/templates/x.yaml" ||
		!strings.Contains(string(o.Manifest), `"size":"1"`) {
		t.Errorf("%s: %s", o.File, o.Manifest)
	}
	// A request that crossed a process boundary renders the same.
	raw, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var again stacks.Request
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if other, err := stacks.Render(t.Context(), again); err != nil || !reflect.DeepEqual(other, result) {
		t.Errorf("%+v, %v", other, err)
	}
}

// The digest of a request includes the digests of its charts, but not their folders.
func TestDigestIncludesChartDigestNotFolder(t *testing.T) {
	req := fetchRequest(t, "")
	fetch(t, &req, storeChart("1.2.3", nil))
	digest := func() string {
		t.Helper()
		d, err := stacks.Digest(req)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := digest()
	req.Charts[0].Root = "elsewhere"
	if digest() != first {
		t.Error("the folder of a chart changes the digest")
	}
	if req.Charts[0].Root != "elsewhere" {
		t.Error("Digest changed the request")
	}
	req.Charts[0].Digest = "sha256:" + strings.Repeat("cd", 32)
	if digest() == first {
		t.Error("the digest of a chart does not change the digest of the request")
	}
}

func TestRequiredChartsAppliesChoices(t *testing.T) {
	off := false
	other := "sha256:" + strings.Repeat("cd", 32)
	ref := func(version, digest string) string { return version + " " + digest }
	for name, c := range map[string]struct {
		choice stacks.ComponentChoice
		want   string
	}{
		"defaults of the stack":      {stacks.ComponentChoice{}, ref("1.2.3", storeDigest)},
		"another version":            {stacks.ComponentChoice{Version: "2.0.0"}, ref("2.0.0", "")},
		"another version and digest": {stacks.ComponentChoice{Version: "2.0.0", Digest: other}, ref("2.0.0", other)},
		"the same version":           {stacks.ComponentChoice{Version: "1.2.3"}, ref("1.2.3", storeDigest)},
		"another digest":             {stacks.ComponentChoice{Digest: other}, ref("1.2.3", other)},
		"disabled":                   {stacks.ComponentChoice{Enabled: &off}, ""},
		"a range":                    {stacks.ComponentChoice{Version: ">=1.0.0"}, ""},
		"an invalid digest":          {stacks.ComponentChoice{Digest: "abc"}, ""},
	} {
		req := fetchRequest(t, storeDigest)
		c.choice.Name = "shop"
		req.Choices.Components = []stacks.ComponentChoice{c.choice}
		refs, err := stacks.RequiredCharts(req)
		got := ""
		for _, r := range refs {
			got += ref(r.Version, r.Digest)
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	// RequiredCharts ignores an invalid stack: Render reports the error.
	for name, text := range map[string]string{"not YAML": "[", "no stack": "a: 1"} {
		refs, err := stacks.RequiredCharts(stacks.Request{Root: writeTree(t, map[string]string{"stack.yaml": text}),
			Stack: "demo"})
		if err != nil || refs != nil {
			t.Errorf("%s: %v, %v", name, refs, err)
		}
	}
}

func TestInvalidFetchedChartsAreRejected(t *testing.T) {
	sub := map[string]string{"store/Chart.yaml": "apiVersion: v2\nname: store\nversion: 1.2.3\n" +
		"dependencies: [{name: cache, version: 1.0.0, repository: 'https://x.example.com'}]\n"}
	for name, c := range map[string]struct {
		files  map[string]string
		change func(*stacks.Request)
		want   string
	}{
		"another version inside": {storeChart("1.2.4", nil), nil, "returned chart store 1.2.4 for store 1.2.3"},
		"a dependency": {storeChart("1.2.3", sub), nil,
			`store-1.2.3/Chart.yaml: component "shop": the chart depends on cache, which is not in the archive; ask the publisher to include it (helm dependency build, then helm package)`},
		"not fetched": {storeChart("1.2.3", nil), func(r *stacks.Request) {
			r.Charts = nil
		}, "chart store 1.2.3 of https://charts.example.com was not fetched"},
		"another was fetched": {storeChart("1.2.3", nil), func(r *stacks.Request) {
			r.Charts[0].Version = "1.2.2"
		}, "was not fetched"},
		"no chart": {map[string]string{"store/x": ""}, nil, "there is no Chart.yaml"},
		"a range": {storeChart("1.2.3", nil), func(r *stacks.Request) {
			r.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Version: "^1"}}
		}, `version "^1" is not an exact version`},
		"an invalid digest": {storeChart("1.2.3", nil), func(r *stacks.Request) {
			r.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Digest: "abc"}}
		}, `digest "abc" is invalid`},
	} {
		req := fetchRequest(t, "")
		fetch(t, &req, c.files)
		if c.change != nil {
			c.change(&req)
		}
		if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	// A digest is allowed only for charts from repositories.
	for _, content := range []string{"- {name: shop, helm: {chart: store}}",
		"- {name: shop, manifests: [store/values.yaml]}"} {
		files := storeChart("1.2.3", nil)
		files["stack.yaml"] = components(content)
		_, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
			Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
			Choices:      stacks.Choices{Components: []stacks.ComponentChoice{{Name: "shop", Digest: storeDigest}}}})
		if err == nil || !strings.Contains(err.Error(), "digest is set") {
			t.Errorf("%s: %v", content, err)
		}
	}
}

func TestWithoutChartsSkipsUnfetchedCharts(t *testing.T) {
	req := fetchRequest(t, storeDigest)
	req.WithoutCharts = true
	req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Version: "2.0.0",
		Override: map[string]any{"values": map[string]any{"any": 1}}}}
	result, err := stacks.Render(t.Context(), req)
	if err != nil || len(result.Components) != 1 || len(result.Components[0].Objects) != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	all := strings.Join(result.Warnings, "\n")
	for _, want := range []string{
		`component "shop": chart store 2.0.0 of https://charts.example.com is not fetched here, so neither it nor its values are checked`, "the stack's digest is for version 1.2.3"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s lacks %q", all, want)
		}
	}
}
