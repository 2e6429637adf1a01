// Command demo shows the controllers at work on this machine: it starts a real
// control plane with a fake node, serves a Git repository made from
// examples/standalone, runs the controller with the rights that are shipped,
// installs a stack, changes it with a push, breaks it by hand, and removes it.
//
//	go run ./e2e/demo          all of it; 0 when everything came true in time
//	KEEP=1 go run ./e2e/demo   leaves it up before the removal, until Ctrl-C
//
// Everything listens on loopback and lives in one temporary folder. Ctrl-C ends
// it at any time and leaves nothing. It must be run from inside the checkout and
// needs Go and git; the control plane is built the first time, which takes some
// minutes. No kubeconfig of the user is read or written.
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

// Exit codes beside 0.
const (
	exitFailed      = 1
	exitInterrupted = 130
)

func main() { os.Exit(run()) }

func run() int {
	// What libraries log would tear the table apart; errors are returned anyway.
	ctrl.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	s := newScreen(os.Stdout)
	defer s.close()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := watchForEnd(s, cancel)
	defer stop()

	d := &demo{screen: s, keep: os.Getenv("KEEP") != "", began: time.Now()}
	err := d.run(ctx)
	ended := &endedError{}
	interrupted := err != nil && errors.As(context.Cause(ctx), &ended)
	if err != nil && !interrupted {
		s.line("")
		s.line("%s %s", s.red("FAILED"), err)
	}
	if err := d.stop(); err != nil {
		s.line("%s to clear up: %s", s.red("FAILED"), err)
		return exitFailed
	}
	switch {
	case interrupted:
		s.line("%s", s.dim("Ended: "+ended.Error()+"."))
		return exitInterrupted
	case err != nil:
		return exitFailed
	}
	return 0
}

// endedError says that somebody wants the demo to end.
type endedError struct{ why string }

func (e *endedError) Error() string { return e.why }

// watchForEnd cancels when a signal comes, or when the process that started this
// one is gone: "go run" dies of a SIGTERM without passing it on. The function
// returned ends the watch.
func watchForEnd(s *screen, cancel context.CancelCauseFunc) (stop func()) {
	// A closed pipe would end the process before it could clean up.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		parent, asked := os.Getppid(), false
		end := func(why string) {
			cancel(&endedError{why})
			if asked {
				s.line("%s", s.dim("Still stopping ..."))
			}
			asked = true
		}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				if sig != syscall.SIGPIPE || !asked {
					end(fmt.Sprintf("asked to (%s)", sig))
				}
			case <-tick.C:
				if !asked && os.Getppid() != parent {
					end("what started it is gone")
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
