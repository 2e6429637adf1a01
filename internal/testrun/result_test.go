package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

var testModule = module{Path: "example.com/m"}

// goEvents is the output of go test -json for a package with a test that fails twice, a test that
// passes when repeated and a skipped test, and for packages that do not build or that panic.
const goEvents = `
{"Action":"start","Package":"example.com/m/a"}
{"Action":"output","Package":"example.com/m/a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"example.com/m/a","Test":"TestBad/inner","Output":"    a_test.go:7: wrong\n"}
{"Action":"fail","Package":"example.com/m/a","Test":"TestBad/inner"}
{"Action":"fail","Package":"example.com/m/a","Test":"TestBad"}
{"Action":"output","Package":"example.com/m/a","Test":"TestFlaky","Output":"    a_test.go:9: late\n"}
{"Action":"fail","Package":"example.com/m/a","Test":"TestFlaky"}
{"Action":"output","Package":"example.com/m/a","Test":"TestSkipped","Output":"    a_test.go:11: no such machine\n"}
{"Action":"skip","Package":"example.com/m/a","Test":"TestSkipped"}
{"Action":"skip","Package":"example.com/m/a","Test":"FuzzIt/seed#0"}
{"Action":"fail","Package":"example.com/m/a"}
{"Action":"fail","Package":"example.com/m/a","Test":"TestBad/inner"}
{"Action":"fail","Package":"example.com/m/a","Test":"TestBad"}
{"Action":"pass","Package":"example.com/m/a","Test":"TestFlaky"}
{"ImportPath":"example.com/m/b","Action":"build-output","Output":"b.go:3:1: syntax error\n"}
{"Action":"fail","Package":"example.com/m/b","FailedBuild":"example.com/m/b"}
{"Action":"output","Package":"example.com/m/c","Output":"panic: test timed out after 1s\n"}
{"Action":"fail","Package":"example.com/m/c"}
`

func TestReadDistinguishesFailuresFlakesAndSkips(t *testing.T) {
	f := newReportFiles(filepath.Join(t.TempDir(), "out"))
	unlock, err := f.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write(t, f.events, goEvents+`
{"Action":"fail","Package":"example.com/m/e2e/s","Test":"TestSuite"}
{"Action":"fail","Package":"example.com/m/e2e/s"}`)
	failed := types.Failure{Message: "Expected\n    1\nto equal\n    2",
		Location: types.CodeLocation{FileName: "/src/s_test.go", LineNumber: 5}}
	writeJSON(t, layout.SuiteOf(f.suites,
		"e2e/s").JSON, []types.Report{{SuiteConfig: types.SuiteConfig{RandomSeed: 42}, SpecReports: types.SpecReports{
		{LeafNodeText: "fails", State: types.SpecStateFailed, Failure: failed},
		{LeafNodeText: "flakes", State: types.SpecStatePassed,
			AdditionalFailures: []types.AdditionalFailure{{State: types.SpecStateFailed, Failure: failed}}},
		{LeafNodeText: "is skipped", State: types.SpecStateSkipped, Failure: types.Failure{Message: "no root"}},
		{LeafNodeText: "is filtered", State: types.SpecStateSkipped},
		{LeafNodeText: "passes", State: types.SpecStatePassed},
	}}})
	write(t, layout.SuiteOf(f.suites, "e2e/s").Started, "TestSuite")
	r, err := f.read(testModule)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, x := range r.failures {
		got["failed"] = append(got["failed"], x.Package+" "+x.Name+" "+x.Error)
	}
	for _, x := range r.flakes {
		got["flaked"] = append(got["flaked"], x.Package+" "+x.Name+" "+x.Error)
	}
	for _, x := range r.skips {
		got["skipped"] = append(got["skipped"], x.Package+" "+x.Name+" "+x.Error)
	}
	want := map[string][]string{
		"failed": {"a TestBad/inner a_test.go:7: wrong", "b  b.go:3:1: syntax error",
			"c  panic: test timed out after 1s",
			"e2e/s fails s_test.go:5: Expected 1 to equal 2"},
		"flaked":  {"a TestFlaky a_test.go:9: late", "e2e/s flakes s_test.go:5: Expected 1 to equal 2"},
		"skipped": {"a TestSkipped a_test.go:11: no such machine", "e2e/s is skipped no root"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestReadReportsASuiteThatPassedButRaced(t *testing.T) {
	f := newReportFiles(filepath.Join(t.TempDir(), "out"))
	unlock, err := f.prepare()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write(t, f.events,
		`{"Action":"output","Package":"example.com/m/s","Test":"TestSuite","Output":"WARNING: DATA RACE\n"}
{"Action":"fail","Package":"example.com/m/s","Test":"TestSuite"}`)
	writeJSON(t, layout.SuiteOf(f.suites, "s").JSON, []types.Report{{SuiteSucceeded: true}})
	write(t, layout.SuiteOf(f.suites, "s").Started, "TestSuite")
	r, err := f.read(testModule)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.failures) != 1 || r.failures[0].Error != "WARNING: DATA RACE" {
		t.Errorf("failures %+v", r.failures)
	}
}

func TestPassedAllowsFewFlakes(t *testing.T) {
	flakes := make([]testReport, maxFlakes+1)
	for name, c := range map[string]struct {
		result result
		want   bool
	}{
		"nothing failed":  {result{}, true},
		"few flakes":      {result{flakes: flakes[1:]}, true},
		"too many flakes": {result{flakes: flakes}, false},
		"a failure":       {result{failures: flakes[:1]}, false},
		"go test failed":  {result{failed: true}, false},
	} {
		if got := c.result.passed(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSummaryNamesEachFailureOnce(t *testing.T) {
	r := result{failed: true, wall: 90 * time.Second,
		failures: []testReport{{Package: "e2e/s", Name: "fails", Error: "s_test.go:5: wrong", Seed: 42, Logs: "logs"}},
		usages: []usage{{Package: "slow", Wall: 31, CPU: 5}, {Package: "busy", Wall: 5, CPU: 31},
			{Package: "fine", Wall: 29, CPU: 29}}}
	b := budgets{"slow": {Wall: 20, CPU: 20}, "busy": {Wall: 20, CPU: 20}, "fine": {Wall: 20, CPU: 20}}
	got := r.summary(b, newReportFiles("out"))
	for _, want := range []string{"e2e/s: fails (seed 42)\n    s_test.go:5: wrong\n    logs: logs",
		"slow: wall 31 s of 20", "busy: wall 5 s of 20, CPU 31 s of 20",
		"== 1 failed, 0 flaked, 0 skipped in 1m30s; reports in out"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q must occur once:\n%s", want, got)
		}
	}
	if strings.Contains(got, "fine") {
		t.Errorf("a package within its budget is named:\n%s", got)
	}
}

func TestReadUsagesSumsAttempts(t *testing.T) {
	f := newReportFiles(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []usage{{Package: filepath.Join(wd, "a"), Wall: 1, CPU: 2},
		{Package: filepath.Join(wd, "a"), Wall: 3, CPU: 4}} {
		if err := u.append(f.usage); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.readUsages(wd)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Package != "a" || got[0].Wall != 4 || got[0].CPU != 6 {
		t.Errorf("usages %+v", got)
	}
	if table, _ := os.ReadFile(f.table); string(table) != "package\twall s\tCPU s\na\t4.0\t6.0\n" {
		t.Errorf("table %q", table)
	}
}

func TestBudgetsSortLongestFirst(t *testing.T) {
	b := budgets{"e2e/long": {Wall: 90, CPU: 1}, "short": {Wall: 2, CPU: 3}}
	if b.compare("e2e/long", "short") >= 0 || b.compare("new", "e2e/long") >= 0 || b.compare("short", "new") <= 0 {
		t.Error("wrong order")
	}
}

func TestGinkgoFlagsArePassedToTestBinaries(t *testing.T) {
	o, err := parseOptions([]string{"-p", "3", "./a", "./b", "--", "-run", "TestX", "-ginkgo.focus", "two words"})
	if err != nil {
		t.Fatal(err)
	}
	if o.parallel != 3 || !slices.Equal(o.packages, []string{"./a", "./b"}) ||
		!slices.Equal(o.goArgs, []string{"-run", "TestX"}) ||
		!slices.Equal(o.testArgs, []string{"-ginkgo.focus", "two words"}) {
		t.Errorf("%+v", o)
	}
}

func TestUnfinishedTestFails(t *testing.T) {
	for name, events := range map[string]string{
		"its program is killed and passes when repeated": `{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"fail","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"pass","Package":"m/a","Test":"TestX"}
{"Action":"pass","Package":"m/a"}`,
		"the setup of the package fails and passes when repeated": `{"Action":"fail","Package":"m/a"}
{"Action":"pass","Package":"m/a"}`,
		"the run is interrupted": `{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"outp`,
		"a test fails by itself when its part passes": `{"Action":"fail","Package":"m/a","Test":"TestX/part"}
{"Action":"fail","Package":"m/a","Test":"TestX"}
{"Action":"pass","Package":"m/a","Test":"TestX/part"}
{"Action":"fail","Package":"m/a","Test":"TestX"}`,
	} {
		tests, err := readEvents(strings.NewReader(events), "m")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if failures, _ := tests.failed(); len(failures) != 1 {
			t.Errorf("%s: failures %+v", name, failures)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, file string, content any) {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text))
}
