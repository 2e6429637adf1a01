package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

// usage is what the tests of one package took.
type usage struct {
	// Package is the folder of the tests.
	Package string
	Start   time.Time
	// Wall and CPU are seconds. CPU is of the test program and all its descendants.
	Wall, CPU float64
}

// execute runs a test program, appends its [usage] to the file in [usageVariable], and
// returns its exit code.
func execute(command []string) int {
	if isRepeatedSuite(command[1:]) {
		fmt.Println("Not run again: Ginkgo has repeated its failed specs already.")
		return 1
	}
	folder, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Descendants whose parent is killed become children of this process, so that their
	// times count.
	adoptOrphans()
	// The test program is in the same process group and receives the signal, too.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	// It ends by its own timeout, and by the signals that its group receives.
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	u := usage{Package: folder, Start: time.Now()}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop := func() {}
	if os.Getenv(loadVariable) == "true" {
		stop = pauseAtRandom(cmd.Process.Pid)
	}
	err = cmd.Wait()
	stop()
	reapOrphans()
	u.Wall, u.CPU = time.Since(u.Start).Seconds(), childrenCPU().Seconds()
	if err := errors.Join(ignoreExit(err), u.append(os.Getenv(usageVariable))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// isRepeatedSuite reports whether gotestsum runs a Ginkgo suite once more, which has a
// report by then.
func isRepeatedSuite(args []string) bool {
	reports := os.Getenv(layout.ReportsVariable)
	if reports == "" || !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-test.run=") }) {
		return false
	}
	files, err := layout.WorkingSuite(reports)
	if err != nil {
		return false
	}
	_, err = os.Stat(files.JSON())
	return err == nil
}

func (u usage) append(file string) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(u)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Clean(file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
