// Command compare renders the charts in a folder with Helm's library and with ours, and prints in
// which way the objects differ. It takes any folder of charts, as folders or archives:
//
//	go run ./e2e/charts/compare DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/internal/renderworker"
)

func main() {
	runAsChild()
	hostile := flag.Bool("hostile", false, "render charts that try to use unlimited time or memory beside Helm")
	bench := flag.Bool("bench", false, "measure CPU and allocated bytes beside Helm")
	profile := flag.String("profile", "", "with -bench, write a CPU profile to this file; its labels are side and run")
	flag.Parse()
	ctx := context.Background()
	if *hostile {
		exitOn(benchHostile(ctx, os.Stdout))
		return
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: compare [-bench [-profile FILE]] DIR..., or compare -hostile")
		os.Exit(2)
	}
	var charts []string
	for _, dir := range flag.Args() {
		found, err := findCharts(dir)
		exitOn(err)
		charts = append(charts, found...)
	}
	if *bench {
		exitOn(profiled(*profile, func() error { return benchCharts(ctx, os.Stdout, charts) }))
		return
	}
	exitOn(compareCharts(ctx, charts))
}

// runAsChild renders and exits if this process is a render worker or renders a hostile chart.
func runAsChild() {
	if len(os.Args) == 2 && os.Args[1] == renderworker.Command {
		os.Exit(renderworker.Main())
	}
	if len(os.Args) == 3 && hostileSides[os.Args[1]] != nil {
		exitOn(hostileSides[os.Args[1]](stackFolder{root: os.Args[2], chart: "chart"}))
		os.Exit(0)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compareCharts prints the cases of charts that differ, and how many there are of each class.
func compareCharts(ctx context.Context, charts []string) error {
	counts := map[class]int{}
	for _, c := range charts {
		cases, err := casesOf(c)
		if err != nil {
			return err
		}
		for _, one := range cases {
			result := one.compare(ctx)
			counts[result.class]++
			if result.class != equal {
				fmt.Printf("%s\t%s\t%s\n", result.class, one, result.detail)
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%d\t%s\n", counts[c], c)
	}
	return nil
}

// findCharts returns the charts in a folder, but neither their subcharts nor library charts.
func findCharts(dir string) (charts []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			metadata, err := os.ReadFile(filepath.Join(path, "Chart.yaml"))
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !libraryType.Match(metadata) {
				charts = append(charts, path)
			}
			return filepath.SkipDir
		case strings.HasSuffix(path, ".tgz"):
			charts = append(charts, path)
		}
		return nil
	})
	return charts, err
}

var libraryType = regexp.MustCompile(`(?m)^type: *["']?library`)

// chartCase is a chart with one values file; "" if it has its default values.
type chartCase struct{ chart, values string }

func (c chartCase) String() string {
	if c.values == "" {
		return c.chart
	}
	return c.chart + " with " + filepath.Base(c.values)
}

// casesOf returns the cases of a chart: its default values, and each of ci/*values*.yaml.
func casesOf(chart string) ([]chartCase, error) {
	out := []chartCase{{chart: chart}}
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*values*.yaml"))
	for _, file := range files {
		out = append(out, chartCase{chart: chart, values: file})
	}
	return out, err
}
