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

// describeMachine returns a description of this machine.
func describeMachine() report.Machine {
	m := report.Machine{Processor: "unknown processor", Processors: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if name := procField("/proc/cpuinfo", "model name"); name != "" {
		m.Processor = name
	}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.MemoryMiB = kib >> 10
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(kernel))
	}
	return m
}

// procField returns a value from a file of lines "name : value".
func procField(file, name string) string {
	data, _ := os.ReadFile(file) // exists on Linux only
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// commitID returns the commit of the checkout, with a suffix if it has uncommitted changes. Changes
// below docs are ignored, because they do not affect the measurement.
func commitID(ctx context.Context) string {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = pathFromHere(".")
		out, _ := cmd.Output() // fails in a copy without Git history
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

// versions returns the versions of Go and of the programs that the peers need.
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

// writeResults writes the results to a folder: JSON, a Markdown page and charts.
func writeResults(dir string, r report.Report) error {
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
		return fmt.Errorf("writing the results: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	return nil
}

var chartTitles = map[string]string{
	"wall": "Time until all installs are in the expected state",
	"cpu":  "CPU time of the controller",
	"rss":  "Peak resident memory of the controller",
}
