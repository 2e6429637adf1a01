package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Output      string
	FailedBuild string
}

// testID names a test; Test is empty for the package as a whole.
type testID struct{ Package, Test string }

// tests is what go test reported, repetitions included.
type tests struct {
	// ends are the last actions of each test, in order: pass, fail or skip.
	ends map[testID][]string
	// output is of tests that failed or were skipped, from their first such attempt.
	output map[testID]string
}

// readEvents reads the output of go test -json. Packages lose the module's path.
func readEvents(r io.Reader, module string) (*tests, error) {
	t := &tests{ends: map[testID][]string{}, output: map[testID]string{}}
	pending, builds := map[testID]*strings.Builder{}, map[string]string{}
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var e event
		switch err := decoder.Decode(&e); {
		case err == io.EOF:
			return t, nil
		case err != nil:
			return nil, fmt.Errorf("reading the events of go test: %w", err)
		}
		id := testID{strings.TrimPrefix(e.Package, module+"/"), e.Test}
		switch e.Action {
		case "build-output":
			builds[e.ImportPath] += e.Output
		case "output":
			if pending[id] == nil {
				pending[id] = &strings.Builder{}
			}
			pending[id].WriteString(e.Output)
		case "pass", "fail", "skip":
			t.ends[id] = append(t.ends[id], e.Action)
			if _, kept := t.output[id]; e.Action != "pass" && !kept {
				t.output[id] = builds[e.FailedBuild]
				if b := pending[id]; b != nil {
					t.output[id] += b.String()
				}
			}
			delete(pending, id)
		}
	}
}

func (t *tests) packages() []string {
	names := map[string]bool{}
	for id := range t.ends {
		names[id.Package] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// failed returns the tests that failed at least once: the innermost ones, and packages in
// which no test did.
func (t *tests) failed() []failure {
	var list []failure
	for id, ends := range t.ends {
		if slices.Contains(ends, "fail") && !t.failedWithin(id) {
			list = append(list, failure{Package: id.Package, Name: id.Test, Error: firstError(t.output[id])})
		}
	}
	return list
}

// failedWithin reports whether a test inside another one, or inside a package, failed.
func (t *tests) failedWithin(outer testID) bool {
	for id, ends := range t.ends {
		inside := outer.Test == "" && id.Test != "" || strings.HasPrefix(id.Test, outer.Test+"/")
		if id.Package == outer.Package && id != outer && inside && slices.Contains(ends, "fail") {
			return true
		}
	}
	return false
}

// failedAtLast reports whether the last attempt of a test failed, too.
func (t *tests) failedAtLast(f failure) bool {
	ends := t.ends[testID{f.Package, f.Name}]
	return ends[len(ends)-1] == "fail"
}

// skipped returns the tests that did not run. A fuzz target skips inputs that are of no
// interest to it, which are left out.
func (t *tests) skipped() []skip {
	var list []skip
	for id, ends := range t.ends {
		input := strings.HasPrefix(id.Test, "Fuzz") && strings.Contains(id.Test, "/")
		if id.Test != "" && !input && ends[len(ends)-1] == "skip" {
			list = append(list, skip{id.Package, id.Test, firstError(t.output[id])})
		}
	}
	return list
}

var (
	// reported is what t.Error, t.Skip and their like print.
	reported = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: .*$`)
	panics   = regexp.MustCompile(`(?m)^(panic: .*|WARNING: DATA RACE|fatal error: .*)$`)
	// framing are the lines that say where a test begins and ends.
	framing = regexp.MustCompile(`^(=== |--- |\s*--- |FAIL|ok  |PASS|exit status)`)
)

// firstError is the line of a test's output that says what is wrong.
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
