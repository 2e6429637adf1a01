package helm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// The limit of files includes the files of subcharts, at any depth.
func TestChartFilesAreBounded(t *testing.T) {
	sub := []string{"sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n"}
	for i := range DefaultLimits().Files - 1 {
		sub = append(sub, fmt.Sprintf("sub/files/%d", i), "")
	}
	root := t.TempDir()
	for name, files := range map[string][]string{
		"direct.tgz": append([]string{"c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/more", ""},
			asMain(sub)...),
		"within.tgz": {"c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/charts/sub-1.0.0.tgz",
			string(gzipped(t, archiveOf(t, sub...)))},
	} {
		write(t, filepath.Join(root, name), gzipped(t, archiveOf(t, files...)))
		tree, err := source.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Loader{}.Open(tree, name)
		if err == nil || !strings.Contains(err.Error(), "more than 20000 files") {
			t.Errorf("%s: %v", name, err)
		}
		checkTyped(t, err)
		tree.Close()
	}
}

// asMain moves the files of a subchart to the folder of the chart.
func asMain(files []string) []string {
	var out []string
	for i := 2; i < len(files); i += 2 {
		out = append(out, "c/"+strings.TrimPrefix(files[i], "sub/"), files[i+1])
	}
	return out
}

func TestFunctionCallsAreBounded(t *testing.T) {
	for call, allowed := range map[string]bool{
		fmt.Sprintf(`repeat %d "a" | len`, maxRepeat):      true,
		fmt.Sprintf(`repeat %d "a" | len`, maxRepeat+1):    false,
		fmt.Sprintf(`until %d | len`, maxLoop):             true,
		fmt.Sprintf(`until %d | len`, maxLoop+1):           false,
		fmt.Sprintf(`randAlpha %d | len`, maxRandom):       true,
		fmt.Sprintf(`randAlpha %d | len`, maxRandom+1):     false,
		fmt.Sprintf(`randBytes %d | len`, maxRandom+1):     false,
		fmt.Sprintf(`untilStep 0 %d 1 | len`, maxLoop+1):   false,
		fmt.Sprintf(`untilStep 0 -%d -1 | len`, maxLoop+1): false,
	} {
		if out, err := execTemplate(t, newTestGenerator(generated.Refuse, "a"),
			"{{ "+call+" }}"); (err == nil) != allowed {
			t.Errorf("%s: %s, %v", call, out, err)
		}
	}
}
