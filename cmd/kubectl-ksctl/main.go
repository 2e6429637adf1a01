// Command kubectl-ksctl checks and renders stacks without a cluster. On the PATH it
// is a kubectl plugin: kubectl ksctl validate.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errFailed ends the program with a failure that was told already.
var errFailed = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(1)
}
