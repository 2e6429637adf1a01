package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

func TestCheckChartDigestsRejectsChangedChart(t *testing.T) {
	const repository = "https://charts.example.com"
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	root := t.TempDir()
	for name, text := range map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: shop}\nspec:\n  version: 1.0.0\n " +
			" components:\n" +
			"  - {name: own, version: 1.0.0, helm: {repository: '" + repository + "', name: web}}\n" +
			"  - {name: pinned, version: 1.0.0, helm: {repository: '" + repository + "', name: web, digest: '" + two +
			"'}}\n" +
			"  - {name: main, helm: {chart: chart}}\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: web, version: 1.x, " +
			"repository: '" + repository + "'}]\n",
		"chart/Chart.lock": "dependencies: [{name: web, version: 1.0.0, repository: '" + repository + "'}]\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700),
			os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	chartWith := func(version, digest string) appsv1.ChartStatus {
		return appsv1.ChartStatus{Repository: repository, Name: "web", Version: version, Digest: digest}
	}
	chart := chartWith("1.0.0", one)
	for name, c := range map[string]struct {
		was  appsv1.ComponentStatus
		want string
	}{
		"changed chart of a component":       {appsv1.ComponentStatus{Name: "own", Chart: &chart}, `component "own"`},
		"changed chart with a pinned digest": {appsv1.ComponentStatus{Name: "pinned", Chart: &chart}, ""},
		"changed dependency": {appsv1.ComponentStatus{Name: "main",
			ChartDependencies: []appsv1.ChartStatus{chartWith("0.9.0", two), chart}}, `component "main"`},
		"dependency with another version": {appsv1.ComponentStatus{Name: "main",
			ChartDependencies: []appsv1.ChartStatus{chartWith("0.9.0", one)}}, ""},
		"unchanged dependency": {appsv1.ComponentStatus{Name: "main",
			ChartDependencies: []appsv1.ChartStatus{chartWith("1.0.0", two)}}, ""},
		"dependency of another component": {
			appsv1.ComponentStatus{Name: "other", ChartDependencies: []appsv1.ChartStatus{chart}}, ""},
		"component that was not installed": {appsv1.ComponentStatus{Name: "main"}, ""},
		"dependency that was the chart before": {appsv1.ComponentStatus{Name: "main", Chart: &chart},
			`component "main"`},
	} {
		req := stacks.Request{Root: root, Stack: "shop"}
		refs, err := stacks.RequiredCharts(req)
		if err != nil || len(refs) != 3 {
			t.Fatalf("%+v, %v", refs, err)
		}
		for _, ref := range refs {
			ref.Digest = two
			req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref})
		}
		in := &appsv1.KsctlInstall{}
		in.Status.Components = []appsv1.ComponentStatus{c.was}
		err = checkChartDigests(in, &req)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		changed, ok := errors.AsType[*reconcile.StepError](err)
		if !ok || changed.Reason != appsv1.ChartChangedReason || changed.Class != reconcile.TerminalClass ||
			!strings.Contains(err.Error(), "now serves "+two+" for this version, but "+one+" is installed") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		advice := "pin the digest with helm.digest"
		if c.was.Name == "main" { // the chart is a dependency
			advice = "vendor it (helm dependency build) and commit it"
		}
		if ok && !strings.HasSuffix(strings.Split(err.Error(), " in the stack,")[0], advice) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
