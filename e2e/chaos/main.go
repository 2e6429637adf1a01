// Command chaos runs the controller on a real control plane while commits, people and failures
// change everything at random, and then demands that it converges by itself:
//
//	go run ./e2e/chaos -seed 1 -minutes 10 -installs 30
//
// After the last fault, every install has to be Ready within two minutes, and the cluster has to be
// exactly as the generator of the run expects, which the program checker compares. The same holds
// after the removal of all installs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/chaos/check"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
)

func main() {
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random choices")
	minutes := flag.Float64("minutes", 10, "duration of the faults")
	installs := flag.Int("installs", 30, "number of KsctlInstalls")
	keep := flag.String("log", "", "file for the logs of the controllers")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := chaos(ctx, *seed, *minutes, *installs, *keep)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: repeat with -seed %d -minutes %v -installs %d: %v\n", *seed, *minutes, *installs,
			err)
		os.Exit(1)
	}
}

func chaos(ctx context.Context, seed uint64, minutes float64, installs int, log string) (err error) {
	r := &run{world: newWorld(rand.New(rand.NewPCG(seed, 0)), "chaos", installs), began: time.Now(), logFile: log}
	if r.dir, err = os.MkdirTemp("", "ksctl-gitops-chaos-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err = r.buildChecker(ctx); err != nil {
		return err
	}
	if r.h, err = harness.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.h.Stop()) }()
	repositories := filepath.Join(r.dir, "git")
	if err = os.Mkdir(repositories, 0o700); err != nil {
		return err
	}
	server, err := gitserver.New(repositories)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err = r.prepare(ctx, server); err != nil {
		return err
	}
	defer func() {
		r.process.Kill()
		r.recordLog()
	}()
	r.logf("seed %d: %d installs in %d namespaces and %d repositories", seed, installs, namespaceCount, repositoryCount)
	if _, err = r.awaitConvergence(ctx); err != nil {
		return fmt.Errorf("before the first fault: %w", err)
	}
	if err = r.plantForeign(ctx); err != nil {
		return err
	}
	if err = r.check(ctx, r.expected(r.heads), "before"); err != nil {
		return err
	}
	return r.faultsAndRemoval(ctx, time.Duration(minutes*float64(time.Minute)))
}

// faultsAndRemoval runs faults for a time, and checks what is left of them, and of everything.
func (r *run) faultsAndRemoval(ctx context.Context, duration time.Duration) error {
	for end := time.Now().Add(duration); time.Now().Before(end) && ctx.Err() == nil; {
		acted, err := r.act(ctx)
		if err != nil {
			return err
		}
		if acted {
			r.pause(ctx, 1500*time.Millisecond)
		}
	}
	if err := r.heal(ctx); err != nil {
		return err
	}
	r.logf("the last fault is over")
	took, err := r.awaitConvergence(ctx)
	if err != nil {
		return err
	}
	n := len(took)
	r.logf("all %d installs are Ready: p50 %s, p90 %s, p99 %s, all %s after the last fault", n,
		took[n/2].Round(time.Millisecond), took[n*9/10].Round(time.Millisecond), took[n*99/100].Round(time.Millisecond),
		took[n-1].Round(time.Millisecond))
	if err := r.check(ctx, r.expected(r.heads), "after"); err != nil {
		return err
	}
	if err := r.removeAll(ctx); err != nil {
		return err
	}
	if err := r.check(ctx, check.Expected{Namespaces: r.namespaces(), Everything: r.everything},
		"removed"); err != nil {
		return err
	}
	return r.reportFaults(duration)
}

// reportFaults prints how often each action ran. In a run of ten minutes, each has to run at least
// five times.
func (r *run) reportFaults(duration time.Duration) error {
	var rare []string
	total := 0
	for _, a := range actions {
		n := r.faults[a.name]
		fmt.Printf("%5d %s\n", n, a.name)
		total += n
		if n < minFaults {
			rare = append(rare, a.name)
		}
	}
	fmt.Printf("%5d actions\n", total)
	if len(rare) > 0 && duration >= 10*time.Minute {
		return fmt.Errorf("these ran less than %d times: %s", minFaults, strings.Join(rare, ", "))
	}
	if n := len(r.errorLines); n > 0 {
		slices.Sort(r.errorLines)
		fmt.Printf("%5d error lines in the logs of the controllers, such as:\n%s\n", n,
			strings.Join(slices.Compact(r.errorLines)[:min(20, len(slices.Compact(slices.Clone(r.errorLines))))], "\n"))
	}
	return nil
}
