package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/tools"
)

// machine is what the benchmark runs on.
func machine() report.Machine {
	m := report.Machine{Processor: "unknown processor", Processors: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		m.Processor = name
	}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.MemoryMiB = kib >> 10
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(kernel))
	}
	return m
}

// field of a file of lines "name : value".
func field(file, name string) string {
	data, _ := os.ReadFile(file) // elsewhere than on Linux there is none
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// commitID of the checkout, and whether it has changes that are in no commit;
// what is written below docs changes nothing of what is measured.
func commitID(ctx context.Context) string {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = besides(".")
		out, _ := cmd.Output() // a copy without history has no commit
		return strings.TrimSpace(string(out))
	}
	id := git("rev-parse", "--short", "HEAD")
	switch {
	case id == "":
		return "unknown"
	case git("status", "--porcelain", "--", ":/", ":!/docs") != "":
		return id + " with changes"
	}
	return id
}

// versions of what takes part.
func versions(peers []string) (map[string]string, error) {
	out := map[string]string{"Go": runtime.Version()}
	programs := []string{tools.APIServer, tools.Etcd, tools.Kwok}
	for peer, program := range map[string]string{report.Flux: tools.KustomizeController, report.ArgoCD: tools.ArgoCD} {
		if slices.Contains(peers, peer) {
			programs = append(programs, program)
		}
	}
	for _, name := range programs {
		v, err := tools.Version(name)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// write puts the results into a folder: JSON, a page and charts.
func write(dir string, r report.Report) error {
	data, err := r.JSON()
	if err != nil {
		return err
	}
	files := map[string]string{"results.json": string(data), "results.md": r.Table(titles())}
	medians := report.Medians(r.Results)
	for name, m := range map[string]report.Metric{"wall": report.Wall, "cpu": report.CPU, "rss": report.RSS} {
		files[name+".svg"] = report.Chart(chartTitles[name], m, medians)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	return nil
}

var chartTitles = map[string]string{
	"wall": "Time until everything is as it should be",
	"cpu":  "CPU time of the controller",
	"rss":  "Peak resident memory of the controller",
}
