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

// resumed is a report with the results that a folder has from before; those of
// another commit, machine or version are refused, as medians would mix them.
func resumed(dir string, now report.Report) (report.Report, error) {
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
		return now, fmt.Errorf("read %s: %w", file, err)
	}
	switch {
	case before.Commit != now.Commit:
		return now, fmt.Errorf("%s is of commit %q, and this is %q; check that one out, or measure into another -out", file, before.Commit, now.Commit)
	case before.Machine != now.Machine:
		return now, fmt.Errorf("%s is of another machine (%+v, and this is %+v); measure into another -out", file, before.Machine, now.Machine)
	}
	// With other peers than before there are other programs.
	for name, version := range now.Versions {
		if was, ok := before.Versions[name]; ok && was != version {
			return now, fmt.Errorf("%s is of %s %s, and this is another version, %s; measure into another -out", file, name, was, version)
		}
	}
	versions := maps.Clone(now.Versions)
	maps.Copy(versions, before.Versions)
	before.Versions = versions
	return before, nil
}

// title says what is measured in one go: a run of a job with a peer.
func (j job) title(peer string, run int) string {
	names := make([]string, len(j.scenarios))
	for i, sc := range j.scenarios {
		names[i] = sc.name
	}
	return fmt.Sprintf("run %d, %s × %d, %s", run, strings.Join(names, ","), j.installs, peer)
}
