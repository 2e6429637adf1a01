// Command testrun runs the tests of this module and ends with one screen about what failed,
// what passed at the second attempt, what was skipped, and what exceeded its time budget.
//
//	testrun -gotestsum bin/gotestsum -out bin/test ./... -- -run TestLoad
//
// Arguments after -- are those of go test; the first -ginkgo flag and what follows it are those
// of the test programs.
//
// "testrun pure ./..." prints the packages whose tests need no API server.
//
// It runs gotestsum, which runs go test. The tests themselves run below "testrun exec", which
// measures the time of each package's whole process tree.
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

// command returns the exit code.
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
	// goArgs are for go test, testArgs for the test programs.
	goArgs, testArgs []string
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("testrun", flag.ContinueOnError)
	fs.StringVar(&o.gotestsum, "gotestsum", "gotestsum", "program that runs go test")
	fs.StringVar(&o.out, "out", "bin/test", "folder for reports, which is emptied first")
	fs.StringVar(&o.budget, "budget", "CONTRIBUTING.md", "page with the table of time budgets")
	fs.IntVar(&o.parallel, "p", 2, "packages that are built and tested at the same time")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Minute, "bound of one package")
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
