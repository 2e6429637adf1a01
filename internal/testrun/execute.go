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
	"syscall"
	"time"
)

// usage is the time that the tests of one package took.
type usage struct {
	// Package is the folder of the tests.
	Package string
	// Wall and CPU are in seconds. CPU includes the test binary and all its descendants.
	Wall, CPU float64
}

// execute runs a test binary, appends its [usage] to the file in [usageVariable], and returns its
// exit code.
func execute(command []string) int {
	folder, err := os.Getwd()
	if err != nil {
		return printError(err)
	}
	// Descendants whose parent is killed become children of this process, so that their CPU time
	// counts.
	adoptOrphans()
	// The test binary is in the same process group and receives the signals, too. This process
	// catches and drops them instead of ignoring them, because a child inherits ignored signals.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	// No cancellation is needed: the binary ends by its own timeout or by the signals of its group.
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	u, began := usage{Package: folder}, time.Now()
	if err := cmd.Start(); err != nil {
		return printError(err)
	}
	stop := func() {}
	if os.Getenv(loadVariable) == "true" {
		stop = pauseAtRandom(cmd.Process.Pid)
	}
	err = cmd.Wait()
	stop()
	reapOrphans()
	u.Wall, u.CPU = time.Since(began).Seconds(), childrenCPU().Seconds()
	if err := errors.Join(ignoreExit(err), u.append(os.Getenv(usageVariable))); err != nil {
		return printError(err)
	}
	return cmd.ProcessState.ExitCode()
}

// printError prints an error and returns the exit code.
func printError(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func ignoreExit(err error) error {
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil
	}
	return err
}

// childrenCPU returns the CPU time of all processes that this process has waited for.
func childrenCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// append appends the usage to a file, as a line of JSON. An empty file name does nothing.
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
