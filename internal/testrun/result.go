package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// result is the outcome of a run.
type result struct {
	failures, flakes, skips []testReport

	usages []usage
	// failed is true if go test failed, even if no test did.
	failed bool
	wall   time.Duration
}

// testReport is a test that failed at least once or was skipped.
type testReport struct {
	Package string
	Name    string
	// Error is the first error that the test reported, or why it was skipped.
	Error string
	// Seed is the random seed of the Ginkgo suite; 0 for other tests.
	Seed int64
	// Logs is the file or folder with the output.
	Logs string
}

// read reads the result of a run from the files that gotestsum, the suites and "testrun exec"
// wrote.
func (f reportFiles) read(m module) (*result, error) {
	events, err := os.Open(f.events)
	if err != nil {
		return nil, fmt.Errorf("reading the events of go test: %w", err)
	}
	defer func() { _ = events.Close() }()
	tests, err := readEvents(events, m.Path)
	if err != nil {
		return nil, err
	}
	r := &result{}
	suites, err := readSuites(f, tests.packages())
	if err != nil {
		return nil, err
	}
	failures, flakes := tests.failed()
	for _, t := range failures {
		// The failed specs of a suite are listed instead of its test. A data race fails the suite
		// without a failed spec.
		if s := suites[t.Package]; len(s.failures) > 0 && s.test == t.Name {
			continue
		}
		t.Logs = f.writeOutput(len(r.failures), t, tests)
		r.failures = append(r.failures, t)
	}
	for _, t := range flakes {
		t.Logs = f.writeOutput(len(failures)+len(r.flakes), t, tests)
		r.flakes = append(r.flakes, t)
	}
	r.skips = tests.skipped()
	for _, s := range suites {
		r.failures, r.flakes, r.skips = append(r.failures, s.failures...), append(r.flakes, s.flakes...),
			append(r.skips, s.skips...)
	}
	for _, list := range [][]testReport{r.failures, r.flakes, r.skips} {
		slices.SortFunc(list, func(a, b testReport) int {
			return strings.Compare(a.Package+" "+a.Name, b.Package+" "+b.Name)
		})
	}
	r.usages, err = f.readUsages(m.Dir)
	return r, err
}

// writeOutput writes the output of a failed test to a file with the number n. It returns the file,
// or the text of the error.
func (f reportFiles) writeOutput(n int, t testReport, tests *testResults) string {
	file := filepath.Join(f.failed, fmt.Sprintf("%03d-%s.log", n, layout.FileName(t.Package+" "+t.Name)))
	if err := os.WriteFile(file, []byte(tests.output[testID{t.Package, t.Name}]), 0o600); err != nil {
		return err.Error()
	}
	return file
}

// readUsages adds up the usages of the attempts of each package, and writes them as a table.
func (f reportFiles) readUsages(root string) ([]usage, error) {
	data, err := os.ReadFile(f.usage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	byPackage := map[string]usage{}
	for line := range bytes.Lines(data) {
		var u usage
		if err := json.Unmarshal(line, &u); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.usage, err)
		}
		if u.Package, err = filepath.Rel(root, u.Package); err != nil {
			return nil, err
		}
		sum := byPackage[u.Package]
		u.Wall, u.CPU = u.Wall+sum.Wall, u.CPU+sum.CPU
		byPackage[u.Package] = u
	}
	var list []usage
	table := "package\twall s\tCPU s\n"
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		u := byPackage[pkg]
		list = append(list, u)
		table += fmt.Sprintf("%s\t%.1f\t%.1f\n", pkg, u.Wall, u.CPU)
	}
	return list, os.WriteFile(f.table, []byte(table), 0o600)
}
