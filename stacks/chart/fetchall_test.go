package chart

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// requestWithDependency is for a stack with a chart in the source that depends on "web" 1.2.3.
func requestWithDependency(t *testing.T, repository string) stacks.Request {
	t.Helper()
	return request(t, "{name: main, helm: {chart: chart}}", map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: web, version: 1.x, " +
			"repository: '" + repository + "'}]\n",
		"chart/Chart.lock": "dependencies: [{name: web, version: 1.2.3, repository: '" + repository + "'}]\n",
	})
}

// request returns the request to render a stack of one component.
func request(t *testing.T, component string, files map[string]string) stacks.Request {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: " +
		"shop}\nspec:\n  version: 1.0.0\n  components:\n  - " + component + "\n"}
	maps.Copy(all, files)
	for name, text := range all {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return stacks.Request{Root: root, Stack: "shop", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
}

func TestFetchAllFetchesDependencies(t *testing.T) {
	repo := newRepository(t)
	data := archive(t, "web", "1.2.3")
	repo.add("web", "1.2.3", data)
	f := newFetcher(t, Options{})
	req := requestWithDependency(t, repo.URL+"/")
	access := newAccessBuilder(repo.URL, repo.ca())
	release, err := f.FetchAll(t.Context(), &req, func(repository string) (*Access, error) {
		if charts := []appsv1.ChartRepository{access.repo}; FindRepository(charts, repository) == nil ||
			FindRepository(charts, repository+"x") != nil {
			t.Errorf("asked for repository %s, want %s", repository, access.repo.Repository)
		}
		return access.build(t), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if len(req.Charts) != 1 || req.Charts[0].DependencyOf != "chart" || req.Charts[0].Digest != digestOf(data) {
		t.Fatalf("%+v", req.Charts)
	}
	result, err := stacks.Render(t.Context(), req)
	if err != nil || len(result.Components[0].Objects) != 1 || len(result.Components[0].ChartDependencies) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

// Render fetches the dependencies that the values enable, and no others.
func TestRenderFetchesEnabledDependencies(t *testing.T) {
	for enabled, want := range map[string]struct{ renders, charts int }{"true": {2, 1}, "false": {1, 0}} {
		repo := newRepository(t)
		if enabled == "true" {
			repo.add("web", "1.2.3", archive(t, "web", "1.2.3"))
		}
		req := requestWithDependency(t, repo.URL)
		file := filepath.Join(req.Root, "chart", "Chart.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), "version: 1.x", "version: 1.x, condition: web.enabled", 1))
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(filepath.Join(req.Root, "chart",
			"values.yaml"), []byte("web: {enabled: "+enabled+"}\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		renders := 0
		result, err := newFetcher(t, Options{}).Render(t.Context(), req, func(string) (*Access, error) {
			return newAccessBuilder(repo.URL, repo.ca()).build(t), nil
		}, func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
			renders++
			return stacks.Render(ctx, req)
		})
		if err != nil || renders != want.renders || len(result.Components[0].ChartDependencies) != want.charts {
			t.Errorf("enabled: %s: %d renders, %+v, %v", enabled, renders, result, err)
		}
	}
}

// Without an accessFor function, FetchAll sends requests without credentials.
func TestFetchAllWithoutAccess(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.2.3", archive(t, "web", "1.2.3"))
	req := request(t, "{name: main, version: 1.2.3, helm: {repository: '"+repo.URL+"', name: web}}", nil)
	_, err := newFetcher(t, Options{}).FetchAll(t.Context(), &req, nil)
	assertError(t, err, Unreachable, false, `component "main": chart web 1.2.3 of `+repo.URL+": ", "certificate")
}

func TestFetchAllGivesAdviceForDependencies(t *testing.T) {
	for text, list := range map[string]func(*repository){
		"has no digest for this version; vendor the chart (helm dependency build) and commit it": func(r *repository) {
			r.list("web", "1.2.3", "", "web-1.2.3.tgz")
		},
		"the index lists the archive at oci://r.example.com/charts; set that repository in Chart.yaml": func(
			r *repository) {
			r.list("web", "1.2.3", strings.Repeat("0", 64), "oci://r.example.com/charts/web:1.2.3")
		},
	} {
		repo := newRepository(t)
		list(repo)
		req := requestWithDependency(t, repo.URL)
		_, err := newFetcher(t, Options{}).FetchAll(t.Context(), &req, func(string) (*Access, error) {
			return newAccessBuilder(repo.URL, repo.ca()).build(t), nil
		})
		assertError(t, err, RepositoryInvalid, true, text)
	}
}
