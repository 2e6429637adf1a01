package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of the output of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // set for build-output
	Test        string
	Output      string
	FailedBuild string
}

// testID names a test; Test is empty for the package as a whole.
type testID struct{ Package, Test string }

// testResults holds the results that go test reported, including repeated attempts.
type testResults struct {
	// outcomes are the outcomes of the attempts of each test, in order: pass, fail or skip. A test
	// that did not end has failed.
	outcomes map[testID][]string
	// output is the output of the first attempt of a test that failed or was skipped.
	output map[testID]string
	// crashed are the packages whose test binary exited before a test ended.
	crashed map[string]bool
}

// readEvents reads the output of go test -json. The path of the module is cut off from package
// names. The last line may be incomplete.
func readEvents(r io.Reader, module string) (*testResults, error) {
	t := &testResults{outcomes: map[testID][]string{}, output: map[testID]string{}, crashed: map[string]bool{}}
	running, builds := map[testID]*strings.Builder{}, map[string]string{}
	// begin returns the output of a test that is running.
	begin := func(id testID) *strings.Builder {
		if running[id] == nil {
			running[id] = &strings.Builder{}
		}
		return running[id]
	}
	end := func(id testID, action, build string) {
		t.outcomes[id] = append(t.outcomes[id], action)
		if _, kept := t.output[id]; action != "pass" && !kept {
			t.output[id] = build + begin(id).String()
		}
		delete(running, id)
	}
	// endUnfinished fails the tests of a package that have not ended; "" means of all packages.
	endUnfinished := func(pkg string) {
		for id := range running {
			if id.Test != "" && (pkg == "" || id.Package == pkg) {
				t.crashed[id.Package] = true
				end(id, "fail", "")
			}
		}
	}
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the events of go test: %w", err)
		}
		id := testID{strings.TrimPrefix(e.Package, module+"/"), e.Test}
		switch e.Action {
		case "build-output":
			builds[e.ImportPath] += e.Output
		case "run":
			begin(id)
		case "output":
			begin(id).WriteString(e.Output)
		case "pass", "fail", "skip":
			if id.Test == "" {
				endUnfinished(id.Package)
			}
			end(id, e.Action, builds[e.FailedBuild])
		}
	}
	endUnfinished("")
	return t, nil
}

func (t *testResults) packages() []string {
	names := map[string]bool{}
	for id := range t.outcomes {
		names[id.Package] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// failed returns the innermost tests whose last attempt failed, and those that passed only when
// they were repeated. A package that failed without a failed test, or whose test binary crashed,
// counts as failed even if its next attempt passed, because not all of its tests ran.
func (t *testResults) failed() (failures, flakes []testReport) {
	anyAttempt := func(ends []string) bool { return slices.Contains(ends, "fail") }
	lastAttempt := func(ends []string) bool { return ends[len(ends)-1] == "fail" }
	for id, ends := range t.outcomes {
		f := testReport{Package: id.Package, Name: id.Test, Error: firstError(t.output[id])}
		switch {
		case !anyAttempt(ends):
		case id.Test == "":
			if t.crashed[id.Package] || !t.anyInside(id, anyAttempt) {
				failures = append(failures, f)
			}
		case lastAttempt(ends):
			if !t.anyInside(id, lastAttempt) {
				failures = append(failures, f)
			}
		case !t.anyInside(id, anyAttempt):
			flakes = append(flakes, f)
		}
	}
	return failures, flakes
}

// anyInside reports whether the outcomes of any subtest of outer, or of any test in it if outer is
// a package, meet a condition.
func (t *testResults) anyInside(outer testID, condition func(ends []string) bool) bool {
	for id, ends := range t.outcomes {
		inside := outer.Test == "" && id.Test != "" || strings.HasPrefix(id.Test, outer.Test+"/")
		if id.Package == outer.Package && inside && condition(ends) {
			return true
		}
	}
	return false
}

// skipped returns the tests that were skipped. Skipped inputs of fuzz targets are omitted: a target
// skips inputs that are not interesting.
func (t *testResults) skipped() []testReport {
	var list []testReport
	for id, ends := range t.outcomes {
		input := strings.HasPrefix(id.Test, "Fuzz") && strings.Contains(id.Test, "/")
		if id.Test != "" && !input && ends[len(ends)-1] == "skip" {
			list = append(list, testReport{Package: id.Package, Name: id.Test, Error: firstError(t.output[id])})
		}
	}
	return list
}

var (
	// reported matches the lines that t.Error, t.Skip and the like print.
	reported = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: .*$`)
	panics   = regexp.MustCompile(`(?m)^(panic: .*|WARNING: DATA RACE|fatal error: .*)$`)
	// framing matches the lines that mark the beginning and the end of a test.
	framing = regexp.MustCompile(`^(=== |--- |\s*--- |FAIL|ok  |PASS|exit status)`)
)

// firstError returns the first line of the output of a test that describes an error.
func firstError(output string) string {
	if line := panics.FindString(output); line != "" {
		return line
	}
	if line := reported.FindString(output); line != "" {
		return strings.TrimSpace(line)
	}
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !framing.MatchString(line) {
			return line
		}
	}
	return "no output"
}
