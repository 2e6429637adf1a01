package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/ksctl/gitops/e2e/bench/report"
)

// loadResults returns the report that a folder has from an earlier run, or now if there is none. A
// report of another commit, machine or program version is an error, because medians would mix them.
func loadResults(dir string, now report.Report) (report.Report, error) {
	file := filepath.Join(dir, "results.json")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	var before report.Report
	if err := json.Unmarshal(data, &before); err != nil {
		return now, fmt.Errorf("parsing %s: %w", file, err)
	}
	switch {
	case before.Commit != now.Commit:
		return now, fmt.Errorf("%s is from commit %q, the checkout is at commit %q; check out that commit, or use "+
			"another -out", file, before.Commit, now.Commit)
	case before.Machine != now.Machine:
		return now, fmt.Errorf("%s is from another machine (%+v; this machine is %+v); use another -out", file,
			before.Machine, now.Machine)
	}
	// A run with other peers uses other programs, so only common programs are compared.
	for name, version := range now.Versions {
		if was, ok := before.Versions[name]; ok && was != version {
			return now, fmt.Errorf("%s was measured with another version of %s (%s; this run uses %s); use "+
				"another -out", file, name, was, version)
		}
	}
	versions := maps.Clone(now.Versions)
	maps.Copy(versions, before.Versions)
	before.Versions = versions
	return before, nil
}

// title identifies a run of a job with a peer in [report.Report].Done.
func (j job) title(peer string, run int) string {
	names := make([]string, len(j.scenarios))
	for i, sc := range j.scenarios {
		names[i] = sc.name
	}
	return fmt.Sprintf("run %d, %s × %d, %s", run, strings.Join(names, ","), j.installs, peer)
}
