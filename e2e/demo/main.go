// Command demo demonstrates the controllers on this machine: it starts a real control plane with a
// fake node, serves a Git repository with the content of examples/standalone, runs the controller
// with the shipped RBAC, installs a stack, changes it by a push, changes objects manually, and
// removes the stack.
//
//	go run ./e2e/demo          all steps; exits with 0 if all of them succeed in time
//	KEEP=1 go run ./e2e/demo   keeps everything running instead of the removal, until Ctrl-C
//
// All servers listen on loopback and all files are in one temporary folder. Ctrl-C stops the demo
// at any time and removes everything. It must run inside the checkout and needs Go and git. The
// first run downloads or builds the control plane, which takes some minutes. The demo does not read
// or write the user's kubeconfig.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Exit codes other than 0.
const (
	exitFailed      = 1
	exitInterrupted = 130
)

func main() { os.Exit(run()) }

func run() int {
	// Log lines of libraries would break the table; errors are returned anyway.
	ctrl.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	s := newScreen(os.Stdout)
	defer s.keepLive()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := watchForInterrupt(s, cancel)
	defer stop()

	d := &demo{screen: s, keep: os.Getenv("KEEP") != "", began: time.Now()}
	err := d.run(ctx)
	ended := &interruptedError{}
	interrupted := err != nil && errors.As(context.Cause(ctx), &ended)
	if err != nil && !interrupted {
		s.line("")
		s.line("%s %s", s.red("FAILED"), err)
	}
	if err := d.stop(); err != nil {
		s.line("%s to clean up: %s", s.red("FAILED"), err)
		return exitFailed
	}
	switch {
	case interrupted:
		s.line("%s", s.dim("Interrupted: "+ended.Error()+"."))
		return exitInterrupted
	case err != nil:
		return exitFailed
	}
	return 0
}

// interruptedError is the cancellation cause after a signal or the end of the parent process.
type interruptedError struct{ reason string }

func (e *interruptedError) Error() string { return e.reason }

// watchForInterrupt calls cancel on a signal, or when the parent process ends, because "go run"
// dies of a SIGTERM without forwarding it. The returned function stops watching.
func watchForInterrupt(s *screen, cancel context.CancelCauseFunc) (stop func()) {
	// SIGPIPE is included, because it would end the process without cleanup.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		parent, interrupted := os.Getppid(), false
		end := func(reason string) {
			cancel(&interruptedError{reason})
			if interrupted {
				s.line("%s", s.dim("Still stopping ..."))
			}
			interrupted = true
		}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				if sig != syscall.SIGPIPE || !interrupted {
					end(fmt.Sprintf("received signal %q", sig))
				}
			case <-tick.C:
				if !interrupted && os.Getppid() != parent {
					end("the parent process ended")
				}
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
		cancel(nil)
	}
}
