package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/procstat"
	"github.com/ksctl/gitops/e2e/tools"
)

// describeMachine returns a description of this machine.
func describeMachine() report.Machine {
	m := report.Machine{Processor: cmp.Or(procstat.Field("/proc/cpuinfo", "model name"), "unknown processor"),
		Processors: runtime.NumCPU(),
		MemoryMiB:  procstat.Bytes("/proc/meminfo", "MemTotal") >> 20, System: runtime.GOOS + "/" + runtime.GOARCH}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(kernel))
	}
	return m
}

// commitID returns the commit of the checkout, with a suffix if it has uncommitted changes. Changes
// below docs are ignored, because they do not affect the measurement.
func commitID(ctx context.Context) string {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = harness.RepoPath(".")
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
	files["wall.svg"] = report.Chart("Time until all installs are in the expected state", report.Wall, medians)
	files["cpu.svg"] = report.Chart("CPU time of the controller", report.CPU, medians)
	files["rss.svg"] = report.Chart("Peak resident memory of the controller", report.RSS, medians)
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
