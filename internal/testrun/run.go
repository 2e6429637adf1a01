package main

import (
	"context"
	"errors"
	"fmt"
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

// usageVariable is the environment variable with the file to which "testrun exec" appends.
const usageVariable = "KSCTL_TEST_USAGE"

// run returns whether all tests passed, some maybe at their second attempt.
func run(ctx context.Context, args []string) (bool, error) {
	o, err := parseOptions(args)
	if err != nil {
		return false, err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return false, err
	}
	f := files{o.out}
	if err := f.prepare(); err != nil {
		return false, err
	}
	budgets, err := readBudgets(o.budget)
	if err != nil {
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
	if slices.ContainsFunc(packages, testPackage.runsPrograms) {
		if err := programs.BuildAll(ctx, f.programs()); err != nil {
			return false, err
		}
	}
	if o.load {
		stop := startLoad(ctx)
		defer stop()
	}
	began := time.Now()
	failed := gotestsum(ctx, o, f, packages)
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		return false, failed
	}
	result, err := f.read(packages[0].Module)
	if err != nil {
		return false, err
	}
	result.wall, result.failed = time.Since(began), failed != nil
	text := result.summary(budgets, f)
	fmt.Print("\n", text)
	return result.passed(), os.WriteFile(f.summary(), []byte(text), 0o600)
}

// files are the reports of a run.
type files struct{ folder string }

func (f files) events() string   { return filepath.Join(f.folder, "events.json") }
func (f files) junit() string    { return filepath.Join(f.folder, "go.xml") }
func (f files) usage() string    { return filepath.Join(f.folder, "usage.jsonl") }
func (f files) table() string    { return filepath.Join(f.folder, "usage.tsv") }
func (f files) summary() string  { return filepath.Join(f.folder, "summary.txt") }
func (f files) suites() string   { return filepath.Join(f.folder, "suites") }
func (f files) failed() string   { return filepath.Join(f.folder, "failed") }
func (f files) programs() string { return filepath.Join(f.folder, "programs") }

func (f files) prepare() error {
	if err := os.RemoveAll(f.folder); err != nil {
		return fmt.Errorf("removing the reports of the last run: %w", err)
	}
	return errors.Join(os.MkdirAll(f.suites(), 0o750), os.MkdirAll(f.failed(), 0o750), os.MkdirAll(f.programs(), 0o750))
}

// gotestsum runs the tests. An [exec.ExitError] means that some failed.
func gotestsum(ctx context.Context, o options, f files, packages []testPackage) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var paths []string
	for _, p := range packages {
		paths = append(paths, p.ImportPath)
	}
	args := []string{"--format=pkgname", "--format-icons=text", "--hide-summary=skipped,failed,output",
		"--jsonfile=" + f.events(), "--junitfile=" + f.junit(), "--packages=" + strings.Join(paths, " ")}
	if o.attempts > 1 {
		args = append(args, "--rerun-fails="+strconv.Itoa(o.attempts-1), "--rerun-fails-abort-on-data-race", "--rerun-fails-run-root-test")
	}
	// go vet is part of make lint. Without debug data, compilers need a fifth less time.
	args = append(args, "--", "-vet=off", "-count=1", "-gcflags=all=-dwarf=false", "-p="+strconv.Itoa(o.parallel), "-timeout="+o.timeout.String(), "-exec="+self+" exec")
	if o.race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, o.gotestsum, append(args, strings.Fields(o.goArgs)...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), usageVariable+"="+f.usage(), layout.ReportsVariable+"="+f.suites(),
		layout.ProgramsVariable+"="+f.programs(), loadVariable+"="+strconv.FormatBool(o.load))
	// Tests end by themselves when interrupted, and take what they started with them.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running the tests: %w", err)
	}
	return nil
}
