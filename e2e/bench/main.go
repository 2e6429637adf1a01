// Command bench compares the controller with Flux' kustomize-controller, with a floor that only
// makes the requests that any installer must make, and optionally with Argo CD. Each runs on its
// own real control plane, with the same objects from the same source.
//
//	go run ./e2e/bench -scenario a,b -installs 100 -runs 5 -out docs/benchmarks
//
// docs/benchmarks/README.md describes the scenarios and the measured values.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/bench/report"
)

// options of a run of the benchmark.
type options struct {
	scenarios, peers []string
	installs         []int
	runs             int
	out              string
	objects          int           // number of objects in the large install
	idle             time.Duration // duration of the idle scenario
	timeout          time.Duration // of the scenarios on one control plane
	concurrent       int           // --concurrent of our controller; 0 means the default
	profile          bool
	resume           bool
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parseFlags reads the command line.
func parseFlags(args []string) (options, error) {
	var o options
	var names, counts, peers string
	known := make([]string, len(scenarios))
	for i, s := range scenarios {
		known[i] = s.name
	}
	all := strings.Join(known, ",")
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&names, "scenario", all, "comma-separated scenarios")
	fs.StringVar(&counts, "installs", "", "comma-separated numbers of installs; default: the numbers of each scenario")
	fs.StringVar(&peers, "peer", strings.Join([]string{report.Ours, report.Flux, report.Floor}, ","),
		"comma-separated peers")
	fs.IntVar(&o.runs, "runs", 5, "number of runs of each scenario; the results show medians")
	fs.StringVar(&o.out, "out", "", "folder for the results; if empty, only the table is printed")
	fs.IntVar(&o.objects, "objects", 5000, "number of objects in the large install")
	fs.DurationVar(&o.idle, "idle", time.Minute, "duration of the idle scenario")
	fs.DurationVar(&o.timeout, "timeout", 20*time.Minute,
		"timeout of the scenarios on one control plane; -resume repeats scenarios that timed out")
	fs.IntVar(&o.concurrent, "concurrent", 0, "--concurrent of our controller; 0 means the controller's default")
	fs.BoolVar(&o.profile, "profile", false, "write CPU and heap profiles of each scenario below -out")
	fs.BoolVar(&o.resume, "resume", false, "keep the results of the same commit in -out and run only the missing ones")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.scenarios, o.peers = strings.Split(names, ","), strings.Split(peers, ",")
	for _, name := range o.scenarios {
		if !slices.Contains(known, name) {
			return o, fmt.Errorf("unknown scenario %q; known scenarios: %s", name, all)
		}
	}
	for _, name := range o.peers {
		if _, err := newPeer(name, o); err != nil {
			return o, err
		}
	}
	if counts != "" {
		for text := range strings.SplitSeq(counts, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return o, fmt.Errorf("-installs %q: must be comma-separated positive integers", counts)
			}
			o.installs = append(o.installs, n)
		}
	}
	if (o.profile || o.resume) && o.out == "" {
		return o, errors.New("-profile and -resume require -out")
	}
	return o, nil
}

// run runs all jobs and writes the results after each job.
func run(ctx context.Context, o options) error {
	r := report.Report{Began: time.Now(), Commit: commitID(ctx), Machine: describeMachine()}
	var err error
	if r.Versions, err = versions(o.peers); err != nil {
		return err
	}
	if o.resume {
		if r, err = loadResults(o.out, r); err != nil {
			return err
		}
	}
	var timeouts error
	for i := range o.runs {
		for _, j := range jobs(o) {
			for _, name := range o.peers {
				err := runAndRecord(ctx, &r, o, j, name, i+1)
				switch {
				case errors.Is(err, errTimeout): // a peer that hangs must not end the measurement of the others
					fmt.Fprintln(os.Stderr, "bench: timed out:", err)
					timeouts = errors.Join(timeouts, err)
				case err != nil:
					return err
				}
			}
		}
	}
	fmt.Print(r.Table(titles()))
	return timeouts
}

// errTimeout is the error of a job that exceeded -timeout.
var errTimeout = errors.New("timed out")

// runAndRecord runs a job with one peer and adds the results to the report, unless the report has
// them already.
func runAndRecord(ctx context.Context, r *report.Report, o options, j job, peer string, run int) error {
	title := j.title(peer, run)
	if slices.Contains(r.Done, title) {
		return nil
	}
	results, err := runJob(ctx, j, o, peer)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	for _, result := range results {
		result.Peer, result.Run = peer, run
		r.Results = append(r.Results, result)
	}
	r.Done = append(r.Done, title)
	if o.out == "" {
		return nil
	}
	return writeResults(o.out, *r)
}

// job is a sequence of scenarios that are measured on one control plane.
type job struct {
	scenarios []scenario
	installs  int
}

// jobs returns the jobs that the options select.
func jobs(o options) []job {
	var out []job
	for _, sc := range scenarios {
		if !slices.Contains(o.scenarios, sc.name) {
			continue
		}
		for _, n := range sc.installCounts(o) {
			i := slices.IndexFunc(out, func(j job) bool {
				return sc.sharesControlPlane && j.scenarios[0].sharesControlPlane && j.installs == n
			})
			if i < 0 {
				i, out = len(out), append(out, job{installs: n})
			}
			out[i].scenarios = append(out[i].scenarios, sc)
		}
	}
	return out
}

// installCounts returns the numbers of installs that a scenario runs with.
func (sc scenario) installCounts(o options) []int {
	if len(o.installs) == 0 || slices.Equal(sc.installs, []int{1}) {
		return sc.installs
	}
	return o.installs
}

// runJob runs a job with one peer on a new control plane.
func runJob(ctx context.Context, j job, o options, peer string) (_ []report.Result, err error) {
	j.scenarios = slices.DeleteFunc(slices.Clone(j.scenarios), func(sc scenario) bool {
		return !slices.Contains(sc.peers, peer)
	})
	if len(j.scenarios) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("%w after %s (-timeout)", errTimeout, o.timeout))
	defer cancel()
	defer func() {
		if timeout := context.Cause(ctx); err != nil && timeout != nil && !errors.Is(err, timeout) {
			err = errors.Join(timeout, err)
		}
	}()
	specs, src := j.scenarios[0].layout(o, j.installs)
	s, err := newSession(ctx, peer, o, specs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.commit(ctx, src); err != nil {
		return nil, err
	}
	for _, sc := range j.scenarios {
		if err := sc.run(ctx, s); err != nil {
			return nil, err
		}
	}
	return s.results, nil
}
