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
	// ends are the last actions of each test, in order: pass, fail or skip. A test that did
	// not end has failed.
	ends map[testID][]string
	// output is of tests that failed or were skipped, from their first such attempt.
	output map[testID]string
	// crashed are packages whose test program ended before a test did.
	crashed map[string]bool
}

// readEvents reads the output of go test -json. Packages lose the module's path. The last
// line may be incomplete.
func readEvents(r io.Reader, module string) (*tests, error) {
	t := &tests{ends: map[testID][]string{}, output: map[testID]string{}, crashed: map[string]bool{}}
	running, builds := map[testID]*strings.Builder{}, map[string]string{}
	begin := func(id testID) *strings.Builder {
		if running[id] == nil {
			running[id] = &strings.Builder{}
		}
		return running[id]
	}
	end := func(id testID, action, build string) {
		t.ends[id] = append(t.ends[id], action)
		if _, kept := t.output[id]; action != "pass" && !kept {
			t.output[id] = build + begin(id).String()
		}
		delete(running, id)
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
				t.endUnfinished(id.Package, running, end)
			}
			end(id, e.Action, builds[e.FailedBuild])
		}
	}
	for id := range running {
		if id.Test != "" {
			t.crashed[id.Package] = true
			end(id, "fail", "")
		}
	}
	return t, nil
}

// endUnfinished fails the tests of a package that have not ended when the package has.
func (t *tests) endUnfinished(pkg string, running map[testID]*strings.Builder, end func(id testID, action, build string)) {
	for id := range running {
		if id.Package == pkg && id.Test != "" {
			t.crashed[pkg] = true
			end(id, "fail", "")
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

// failed returns the innermost tests that failed at last, and those that passed only when
// they were repeated. A package in which no test failed, or whose program crashed, has failed
// whatever its next attempt did, as not all of its tests ran.
func (t *tests) failed() (failures, flakes []failure) {
	anyAttempt := func(ends []string) bool { return slices.Contains(ends, "fail") }
	lastAttempt := func(ends []string) bool { return ends[len(ends)-1] == "fail" }
	for id, ends := range t.ends {
		f := failure{Package: id.Package, Name: id.Test, Error: firstError(t.output[id])}
		switch {
		case !anyAttempt(ends):
		case id.Test == "":
			if t.crashed[id.Package] || !t.within(id, anyAttempt) {
				failures = append(failures, f)
			}
		case lastAttempt(ends):
			if !t.within(id, lastAttempt) {
				failures = append(failures, f)
			}
		case !t.within(id, anyAttempt):
			flakes = append(flakes, f)
		}
	}
	return failures, flakes
}

// within reports whether the attempts of some test inside another one, or inside a package,
// meet a condition.
func (t *tests) within(outer testID, condition func(ends []string) bool) bool {
	for id, ends := range t.ends {
		inside := outer.Test == "" && id.Test != "" || strings.HasPrefix(id.Test, outer.Test+"/")
		if id.Package == outer.Package && inside && condition(ends) {
			return true
		}
	}
	return false
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
	// framing are the lines that mark the begin and the end of a test.
	framing = regexp.MustCompile(`^(=== |--- |\s*--- |FAIL|ok  |PASS|exit status)`)
)

// firstError is the first line of a test's output that describes an error.
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
