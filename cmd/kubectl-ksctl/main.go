// Command kubectl-ksctl validates and renders stacks without a cluster. If it is on the PATH, it is
// a kubectl plugin: kubectl ksctl validate.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errReported makes the program exit with 1 without a message, because the failure was already
// printed.
var errReported = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(1)
}
