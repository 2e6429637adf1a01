package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
)

// extraFiles are files, by page, that the examples in the page need and the page does not show.
var extraFiles = map[string]map[string]string{
	"docs/stack-format.md": {
		"stacks/monitoring/crds/kinds.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kinds}\n",
		"stacks/monitoring/settings/exporter.yaml": "apiVersion: v1\nkind: Service\n" +
			"metadata: {name: exporter, labels: {team: a}}\n",
		"stacks/monitoring/settings/charts/exporter-1.2.3/exporter/Chart.yaml": "apiVersion: v2\n" +
			"name: exporter\nversion: 1.2.3\n",
		"stacks/monitoring/settings/charts/exporter-1.2.3/exporter/templates/service.yaml": "apiVersion: v1\n" +
			"kind: Service\nmetadata: {name: {{ .Release.Name }}}\nspec: {ports: [{port: 80}]}\n",
		"stacks/monitoring/settings/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n" +
			"data: {retention: 1d, debug: 'false'}\n",
		"stacks/monitoring/report/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: " +
			"report-}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: " +
			"\"example.com/report:1\"}]}}}\n",
		"stacks/monitoring/drain/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: " +
			"drain}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: " +
			"\"example.com/drain:1\"}]}}}\n",
		"clusters/prod/README": "",
	},
	"docs/charts.md":     {"clusters/prod/README": ""},
	"docs/standalone.md": {},
	"README.md":          {},
}

// The YAML blocks in a page whose first line is a path are the files of a valid repository.
func TestExamplesAreValid(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(# ([\\w./-]+\\.yaml)\n.*?)```")
	for page, files := range extraFiles {
		dir := t.TempDir()
		write := func(name, content string) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for name, content := range files {
			write(name, content)
		}
		found := block.FindAllStringSubmatch(read(t, page), -1)
		for _, m := range found {
			write(m[2], m[1])
		}
		if len(found) < 2 {
			t.Errorf("found only %d examples in %s", len(found), page)
		}
		c, err := checkout.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		report := c.Validate(t.Context(), stacks.Capabilities{})
		// Charts from chart repositories are not fetched.
		report.Warnings = slices.DeleteFunc(report.Warnings, func(w string) bool {
			return strings.Contains(w, "is not fetched here")
		})
		if got := report.String(); got != "1 stack, 1 install: ok" || len(report.Warnings) > 0 {
			t.Errorf("%s: %s %v %v", page, got, report.Problems, report.Warnings)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
