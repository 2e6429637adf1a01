package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// suiteResult is the outcome of one Ginkgo suite.
type suiteResult struct {
	// test is the name of the Go test that runs the suite.
	test                    string
	failures, flakes, skips []testReport
}

// readSuites reads the reports of the packages that are Ginkgo suites, by package.
func readSuites(f reportFiles, packages []string) (map[string]suiteResult, error) {
	suites := map[string]suiteResult{}
	for _, pkg := range packages {
		files := layout.SuiteOf(f.suites, pkg)
		data, err := os.ReadFile(files.JSON)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var reports []types.Report
		if err := json.Unmarshal(data, &reports); err != nil {
			return nil, fmt.Errorf("reading %s: %w", files.JSON, err)
		}
		started, err := os.ReadFile(files.Started)
		if err != nil {
			return nil, err
		}
		for _, r := range reports {
			suites[pkg] = suiteOf(pkg, string(started), files.Logs, r)
		}
	}
	return suites, nil
}

func suiteOf(pkg, test, logs string, r types.Report) suiteResult {
	out := suiteResult{test: test}
	for _, s := range r.SpecReports {
		f := testReport{Package: pkg, Name: specName(s), Seed: r.SuiteConfig.RandomSeed, Logs: logs}
		switch {
		case s.State.Is(types.SpecStateFailureStates):
			f.Error = specError(s.Failure)
			out.failures = append(out.failures, f)
		case len(s.AdditionalFailures) > 0:
			f.Error = specError(s.AdditionalFailures[0].Failure)
			out.flakes = append(out.flakes, f)
		case s.State.Is(types.SpecStateSkipped|types.SpecStatePending) &&
			(s.Failure.Message != "" || s.State.Is(types.SpecStatePending)):
			f.Error = firstLine(s.Failure.Message)
			out.skips = append(out.skips, f)
		}
	}
	return out
}

func specName(s types.SpecReport) string {
	if text := s.FullText(); text != "" {
		return text
	}
	return "[" + s.LeafNodeType.String() + "]"
}

// specError returns one line with the location and the beginning of the message of a failure.
func specError(f types.Failure) string {
	message := f.Message
	if f.ForwardedPanic != "" {
		message = "panic: " + f.ForwardedPanic
	}
	return fmt.Sprintf("%s:%d: %s", filepath.Base(f.Location.FileName), f.Location.LineNumber, firstLine(message))
}

// firstLine joins the lines of a message and truncates the result.
func firstLine(message string) string {
	const longest = 300
	line := []rune(strings.Join(strings.Fields(message), " "))
	return string(line[:min(len(line), longest)])
}
