// Command bench measures the controller beside Flux' kustomize-controller, Argo CD
// when that is asked for, and a floor that only sends what any installer must, each
// on a real control plane of its own, with the same objects from the same source.
//
//	go run ./e2e/bench -scenario a,b -installs 100 -runs 5 -out docs/benchmarks
//
// docs/benchmarks/README.md says what the scenarios are and what is measured.
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
	objects          int // of the large install
	idle             time.Duration
	timeout          time.Duration
	concurrent       int // of ours; 0 as shipped
	profile          bool
	resume           bool
}

func main() {
	o, err := parse(os.Args[1:])
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

// parse reads the command line.
func parse(args []string) (options, error) {
	var o options
	var names, counts, peers string
	known := make([]string, len(scenarios))
	for i, s := range scenarios {
		known[i] = s.name
	}
	all := strings.Join(known, ",")
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&names, "scenario", all, "which scenarios, with commas")
	fs.StringVar(&counts, "installs", "", "how many installs, one or several with commas; the scenario's own when empty")
	fs.StringVar(&peers, "peer", strings.Join([]string{report.Ours, report.Flux, report.Floor}, ","), "which peers, with commas")
	fs.IntVar(&o.runs, "runs", 5, "how many runs of each; medians are what is shown")
	fs.StringVar(&o.out, "out", "", "the folder that results are written to; none are when empty, but the table is printed")
	fs.IntVar(&o.objects, "objects", 5000, "how many objects the large install has")
	fs.DurationVar(&o.idle, "idle", time.Minute, "how long the idle scenario takes")
	fs.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long the scenarios on one control plane may take before they are given up; -resume tries them again")
	fs.IntVar(&o.concurrent, "concurrent", 0, "--concurrent of ours; 0 is as shipped")
	fs.BoolVar(&o.profile, "profile", false, "write CPU and heap profiles of each scenario below -out")
	fs.BoolVar(&o.resume, "resume", false, "go on with the results that -out has of this commit, instead of beginning anew")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.scenarios, o.peers = strings.Split(names, ","), strings.Split(peers, ",")
	for _, name := range o.scenarios {
		if !slices.Contains(known, name) {
			return o, fmt.Errorf("no scenario is called %q; there are %s", name, all)
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
				return o, fmt.Errorf("-installs %q: want numbers from 1 on", counts)
			}
			o.installs = append(o.installs, n)
		}
	}
	if (o.profile || o.resume) && o.out == "" {
		return o, errors.New("-profile and -resume need -out, the folder of the results")
	}
	return o, nil
}

// run measures everything, and writes what there is after each measurement.
func run(ctx context.Context, o options) error {
	r := report.Report{Began: time.Now(), Commit: commitID(ctx), Machine: machine()}
	var err error
	if r.Versions, err = versions(o.peers); err != nil {
		return err
	}
	if o.resume {
		if r, err = resumed(o.out, r); err != nil {
			return err
		}
	}
	var gaveUp error
	for i := range o.runs {
		for _, j := range jobs(o) {
			for _, name := range o.peers {
				err := add(ctx, &r, o, j, name, i+1)
				var late *lateError
				switch {
				case errors.As(err, &late): // a peer that has stopped working is not the others' end
					fmt.Fprintln(os.Stderr, "bench: given up:", err)
					gaveUp = errors.Join(gaveUp, err)
				case err != nil:
					return err
				}
			}
		}
	}
	fmt.Print(r.Table(titles()))
	return gaveUp
}

// lateError is why a job was given up.
type lateError struct{ within time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("not within %s (-timeout)", e.within) }

// add measures a run of a job with one peer, unless the report has it.
func add(ctx context.Context, r *report.Report, o options, j job, peer string, run int) error {
	title := j.title(peer, run)
	if slices.Contains(r.Done, title) {
		return nil
	}
	results, err := once(ctx, j, o, peer)
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
	return write(o.out, *r)
}

// job is what is measured on one control plane, one scenario after the other.
type job struct {
	scenarios []scenario
	installs  int
}

// jobs are what the options ask for.
func jobs(o options) []job {
	var out []job
	for _, sc := range scenarios {
		if !slices.Contains(o.scenarios, sc.name) {
			continue
		}
		for _, n := range sc.counts(o) {
			i := slices.IndexFunc(out, func(j job) bool { return sc.shares && j.scenarios[0].shares && j.installs == n })
			if i < 0 {
				i, out = len(out), append(out, job{installs: n})
			}
			out[i].scenarios = append(out[i].scenarios, sc)
		}
	}
	return out
}

// counts are the numbers of installs that a scenario is run with.
func (sc scenario) counts(o options) []int {
	if len(o.installs) == 0 || slices.Equal(sc.installs, []int{1}) {
		return sc.installs
	}
	return o.installs
}

// once measures a job with one peer on a control plane of its own.
func once(ctx context.Context, j job, o options, peer string) (_ []report.Result, err error) {
	j.scenarios = slices.DeleteFunc(slices.Clone(j.scenarios), func(sc scenario) bool { return sc.peers != nil && !slices.Contains(sc.peers, peer) })
	if len(j.scenarios) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, &lateError{o.timeout})
	defer cancel()
	defer func() {
		if late := context.Cause(ctx); err != nil && late != nil && !errors.Is(err, late) {
			err = errors.Join(late, err)
		}
	}()
	sites, src := j.scenarios[0].layout(o, j.installs)
	s, err := newSession(ctx, peer, o, sites)
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
