package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

// usageVariable is the environment variable with the file to which "testrun exec" appends its
// usage.
const usageVariable = "KSCTL_TEST_USAGE"

// run runs the tests and writes the reports. It returns whether the run passed; tests may have
// needed a second attempt, see [result.passed].
func run(ctx context.Context, args []string) (bool, error) {
	o, err := parseOptions(args)
	if err != nil {
		return false, err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return false, err
	}
	var budgets budgets
	if budgets, err = layout.ReadBudgets(o.budget); err != nil {
		return false, err
	}
	packages, err := listPackages(ctx, o.packages)
	if err != nil {
		return false, err
	}
	if len(packages) == 0 {
		return false, fmt.Errorf("no package of %s has tests", strings.Join(o.packages, " "))
	}
	slices.SortStableFunc(packages, func(a, b testPackage) int { return budgets.compare(a.Folder, b.Folder) })
	f := newReportFiles(o.out)
	unlock, err := f.prepare()
	if err != nil {
		return false, err
	}
	defer unlock()
	runner := testRunner{options: o, reportFiles: f}
	for _, p := range packages {
		runner.paths = append(runner.paths, p.ImportPath)
	}
	if slices.ContainsFunc(packages, testPackage.runsPrograms) {
		if err := programs.BuildAll(ctx, f.programs); err != nil {
			return false, err
		}
		runner.programs = f.programs
	}
	if o.load {
		stop := startLoad(ctx)
		defer stop()
	}
	began := time.Now()
	failed := runner.run(ctx)
	if ignoreExit(failed) != nil {
		return false, failed
	}
	result, err := f.read(packages[0].Module)
	if err != nil {
		return false, err
	}
	result.wall, result.failed = time.Since(began), failed != nil
	text := result.summary(budgets, f)
	fmt.Print("\n", text)
	return result.passed(), os.WriteFile(f.summary, []byte(text), 0o600)
}

// reportFiles are the paths of the reports of a run.
type reportFiles struct {
	// folder has all the others.
	folder string
	// events is the output of go test -json, junit its report for CI servers.
	events, junit string
	// usage has the lines of "testrun exec", table their sums.
	usage, table string
	summary      string
	// These are folders.
	suites, failed, programs string
}

func newReportFiles(folder string) reportFiles {
	below := func(name string) string { return filepath.Join(folder, name) }
	return reportFiles{folder: folder, events: below("events.json"), junit: below("go.xml"),
		usage: below("usage.jsonl"), table: below("usage.tsv"), summary: below("summary.txt"),
		suites: below("suites"), failed: below("failed"), programs: below("programs")}
}

// prepare locks the folder against other runs until unlock is called, and empties it.
func (f reportFiles) prepare() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(f.folder), 0o750); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(f.folder+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = lock.Close() }
	if err := f.empty(lock); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// empty acquires the lock and deletes the reports of the last run. It only deletes a folder that
// has such reports.
func (f reportFiles) empty(lock *os.File) error {
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another run uses %s: %w", f.folder, err)
	}
	entries, err := os.ReadDir(f.folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(f.suites); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has no reports of an earlier run; remove it, or set another folder", f.folder)
	}
	if err := os.RemoveAll(f.folder); err != nil {
		return fmt.Errorf("removing the reports of the last run: %w", err)
	}
	return errors.Join(os.MkdirAll(f.suites, 0o750), os.MkdirAll(f.failed, 0o750), os.MkdirAll(f.programs, 0o750))
}

// testRunner runs the tests of packages with gotestsum.
type testRunner struct {
	options
	reportFiles
	// paths are the import paths of the packages.
	paths []string
	// programs is the folder with the built programs of cmd/; "" if no test needs them.
	programs string
}

// run runs the tests. An [exec.ExitError] means that some failed.
func (g testRunner) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, g.gotestsum, g.args(self)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), usageVariable+"="+g.usage, layout.ReportsVariable+"="+g.suites,
		loadVariable+"="+strconv.FormatBool(g.load))
	if g.programs != "" {
		cmd.Env = append(cmd.Env, layout.ProgramsVariable+"="+g.programs)
	}
	// All descendants are in one process group: gotestsum forwards signals to go test only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Minute
	err = cmd.Run()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("running the tests: %w", err)
	}
	return nil
}

// args returns the arguments of gotestsum, which runs the test binaries under "self exec".
func (g testRunner) args(self string) []string {
	args := []string{"--format=pkgname", "--format-icons=text", "--hide-summary=skipped,failed,output",
		"--jsonfile=" + g.events, "--junitfile=" + g.junit, "--packages=" + strings.Join(g.paths, " ")}
	if g.attempts > 1 {
		args = append(args, "--rerun-fails="+strconv.Itoa(g.attempts-1), "--rerun-fails-abort-on-data-race",
			"--rerun-fails-run-root-test")
	}
	// go vet is part of make lint. Without DWARF, compiling takes a fifth less time.
	args = append(args, "--", "-vet=off", "-count=1", "-gcflags=all=-dwarf=false", "-p="+strconv.Itoa(g.parallel),
		"-timeout="+g.timeout.String(), "-exec="+self+" exec")
	if g.race {
		args = append(args, "-race")
	}
	args = append(args, g.goArgs...)
	if len(g.testArgs) > 0 {
		args = append(append(args, "-args"), g.testArgs...)
	}
	return args
}
