// Command testrun runs the tests of this module and prints a summary: the failures, the tests that
// passed only at a later attempt, the skipped tests, and the packages that exceeded their time
// budget.
//
//	testrun -gotestsum bin/gotestsum -out bin/test ./... -- -run TestLoad
//
// Arguments after -- are passed to go test, except that the first -ginkgo flag and everything after
// it are passed to the test binaries.
//
// "testrun pure ./..." prints the packages whose tests need no API server.
//
// testrun runs gotestsum, which runs go test. Each test binary runs under "testrun exec", which
// measures the time of the whole process tree of a package.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

func main() { os.Exit(command(os.Args[1:])) }

// command runs the program and returns its exit code.
func command(args []string) int {
	if len(args) > 1 && args[0] == "exec" {
		return execute(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	passed := true
	if len(args) > 1 && args[0] == "pure" {
		err = printPure(ctx, args[1:])
	} else {
		passed, err = run(ctx, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	if err != nil || !passed {
		return 1
	}
	return 0
}

// options are the flags of the command.
type options struct {
	gotestsum string
	out       string
	budget    string
	parallel  int
	timeout   time.Duration
	race      bool
	load      bool
	attempts  int
	packages  []string
	// goArgs are passed to go test, and testArgs to the test binaries.
	goArgs, testArgs []string
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("testrun", flag.ContinueOnError)
	fs.StringVar(&o.gotestsum, "gotestsum", "gotestsum", "program that runs go test")
	fs.StringVar(&o.out, "out", "bin/test", "folder for the reports; its content is deleted first")
	fs.StringVar(&o.budget, "budget", "CONTRIBUTING.md", "page with the table of time budgets")
	fs.IntVar(&o.parallel, "p", 2, "number of packages that are built and tested in parallel")
	fs.DurationVar(&o.timeout, "timeout", time.Hour, "timeout of the tests of one package")
	fs.BoolVar(&o.race, "race", false, "detect data races")
	fs.BoolVar(&o.load, "load", false, "keep every processor busy and pause tests at random")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.packages = fs.Args()
	if i := slices.Index(o.packages, "--"); i >= 0 {
		o.packages, o.goArgs = o.packages[:i], o.packages[i+1:]
	}
	if i := slices.IndexFunc(o.goArgs, isGinkgoFlag); i >= 0 {
		o.goArgs, o.testArgs = o.goArgs[:i], o.goArgs[i:]
	}
	var err error
	o.attempts, err = layout.Attempts()
	return o, err
}

func isGinkgoFlag(arg string) bool { return strings.HasPrefix(strings.TrimLeft(arg, "-"), "ginkgo.") }
