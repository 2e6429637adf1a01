package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// runFixtures runs packages of testdata with two attempts. It returns the folder of the reports and
// the summary.
func runFixtures(t *testing.T, packages ...string) (passed bool, out, summary string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds gotestsum and suites")
	}
	folder := t.TempDir()
	gotestsum := filepath.Join(folder, "gotestsum")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join("..", "tools", "gotestsum"), "-o",
		gotestsum, "gotest.tools/gotestsum")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	self := filepath.Join(folder, "testrun")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", self, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out = filepath.Join(folder, "out")
	args := []string{"-gotestsum", gotestsum, "-out", out, "-budget", "../../CONTRIBUTING.md"}
	for _, p := range packages {
		args = append(args, "./testdata/"+p)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KSCTL_") })
	cmd.Env = append(cmd.Env, layout.AttemptsVariable+"=2", "TESTRUN_FIXTURE="+folder)
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)
	content, missing := os.ReadFile(newReportFiles(out).summary)
	if missing != nil {
		t.Fatal(missing)
	}
	return err == nil, out, string(content)
}

func expectOnce(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q must occur once:\n%s", want, text)
		}
	}
}

func TestRunPassesWhenSecondAttemptPasses(t *testing.T) {
	passed, out, summary := runFixtures(t, "flaky")
	if !passed {
		t.Error("the run failed")
	}
	expectOnce(t, summary, "internal/testrun/testdata/flaky: TestSkipped: flaky_test.go:18: no such machine",
		"internal/testrun/testdata/flaky: TestFlaky\n    flaky_test.go:14: the first attempt fails",
		"== 0 failed, 1 flaked, 1 skipped in ")
	if table, err := os.ReadFile(newReportFiles(out).table); err != nil ||
		!strings.Contains(string(table), "internal/testrun/testdata/flaky\t") {
		t.Errorf("%q, %v", table, err)
	}
}

func TestRunFailsWhenSafetySpecFailsOnce(t *testing.T) {
	passed, out, summary := runFixtures(t, "specs")
	if passed {
		t.Error("the run passed")
	}
	expectOnce(t, summary, "internal/testrun/testdata/specs: A spec is skipped: no root",
		"internal/testrun/testdata/specs: A spec flakes (seed ",
		"internal/testrun/testdata/specs: A spec is about safety (seed ", "== 1 failed, 1 flaked, 1 skipped in ")
	logs := layout.SuiteOf(newReportFiles(out).suites, "internal/testrun/testdata/specs").Logs
	files, err := filepath.Glob(filepath.Join(logs, "spec-*-flakes.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("logs of the flaked spec: %v, %v", files, err)
	}
	if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "what the spec wrote") {
		t.Errorf("the log of the flaked spec: %q, %v", text, err)
	}
}

func TestRunFailsWhenPanicPassesOnRepeat(t *testing.T) {
	if passed, _, summary := runFixtures(t, "panics"); passed {
		t.Errorf("the run passed:\n%s", summary)
	}
}

func TestPureExcludesSuites(t *testing.T) {
	packages, err := listPackages(context.Background(),
		[]string{"github.com/ksctl/gitops/e2e/client", "github.com/ksctl/gitops/e2e/demo",
			"github.com/ksctl/gitops/stacks/state"})
	if err != nil {
		t.Fatal(err)
	}
	var pure []string
	for _, p := range packages {
		if p.pure() {
			pure = append(pure, p.Folder)
		}
	}
	if !slices.Equal(pure, []string{"stacks/state"}) {
		t.Errorf("pure packages %q", pure)
	}
}
