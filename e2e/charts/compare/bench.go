package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ksctl/gitops/stacks"
)

const (
	// benchRounds is how often each side is measured. The sides alternate, and the median counts.
	benchRounds = 10
	// benchMinimum is the minimum CPU time of one measurement: a shorter render is repeated.
	benchMinimum = 20 * time.Millisecond
	maxRepeats   = 20
)

// The marks for CPU: ours divided by Helm's, which decodes its output into objects, too.
const (
	firstMark  = 0.9
	secondMark = 0.6
)

// cost is what one render takes.
type cost struct {
	cpu   time.Duration
	bytes uint64 // allocated
}

func (c cost) add(other cost) cost { return cost{cpu: c.cpu + other.cpu, bytes: c.bytes + other.bytes} }

// costs are those of the first install of a chart, and of the second install in a process that has
// rendered the first one. The second install has another release name, namespace and values.
type costs struct{ first, second cost }

func (c costs) add(other costs) costs {
	return costs{first: c.first.add(other.first), second: c.second.add(other.second)}
}

// benchCharts measures CPU and allocated bytes of both sides for each chart, with its default
// values, in this process and from the same folder, and prints ours divided by Helm's.
func benchCharts(ctx context.Context, out io.Writer, charts []string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "first CPU\tHelm\tours\tallocated\tsecond CPU\tHelm\tours\tallocated\tchart")
	row := func(name string, helm, ours costs) {
		part := func(helm, ours cost) string {
			return fmt.Sprintf("%.2f\t%.1fms\t%.1fms\t%.2f", float64(ours.cpu)/float64(helm.cpu),
				float64(helm.cpu.Microseconds())/1e3, float64(ours.cpu.Microseconds())/1e3,
				float64(ours.bytes)/float64(helm.bytes))
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", part(helm.first, ours.first), part(helm.second, ours.second), name)
	}
	var helmTotal, oursTotal costs
	for _, chart := range charts {
		helm, ours, err := benchChart(ctx, chart)
		if err != nil {
			_, _ = fmt.Fprintf(table, "skipped\t\t\t\t\t\t\t\t%s: %s\n", chart, firstLine(err))
			continue
		}
		helmTotal, oursTotal = helmTotal.add(helm), oursTotal.add(ours)
		row(chart, helm, ours)
	}
	row("total", helmTotal, oursTotal)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "marks for CPU: at most %.1f for the first install, %.1f for the second\n", firstMark,
		secondMark)
	return err
}

// benchInstalls are the installs that are measured. Most charts accept the values of the second.
func benchInstalls() (first, second install) {
	return install{release: "first", namespace: "first"},
		install{release: "second", namespace: "another", values: []byte("global: {team: second}\n")}
}

// benchChart returns the medians of one chart.
func benchChart(ctx context.Context, chart string) (helm, ours costs, err error) {
	folder, err := newStackFolder(chart)
	if err != nil {
		return helm, ours, err
	}
	defer func() { err = errors.Join(err, folder.remove()) }()
	first, second := benchInstalls()
	if _, err := folder.renderWithHelm(second); err != nil {
		second.values = nil
	}
	firstRequest, err := folder.request(first)
	if err != nil {
		return helm, ours, err
	}
	secondRequest, err := folder.request(second)
	if err != nil {
		return helm, ours, err
	}
	cached := newRender()
	renderOnce := func(render renderFunc, req stacks.Request) error {
		_, err := render(ctx, req)
		return err
	}
	medians, err := measureAlternating(ctx, []benchRun{
		{"helm", "first", func() error { _, err := folder.renderWithHelm(first); return err }},
		{"ours", "first", func() error { return renderOnce(newRender(), firstRequest) }},
		{"helm", "second", func() error { _, err := folder.renderWithHelm(second); return err }},
		{"ours", "second", func() error { return renderOnce(cached, secondRequest) }},
	}, func() error { return renderOnce(cached, firstRequest) })
	if err != nil {
		return helm, ours, err
	}
	return costs{medians[0], medians[2]}, costs{medians[1], medians[3]}, nil
}

// benchRun is one side's render of one install.
type benchRun struct {
	side, install string
	render        func() error
}

// measureAlternating measures the runs in turns, and returns the median of each. It calls prepare
// first.
func measureAlternating(ctx context.Context, runs []benchRun, prepare func() error) ([]cost, error) {
	if err := prepare(); err != nil {
		return nil, err
	}
	all := make([][]cost, len(runs))
	for round := range benchRounds + 1 {
		for i, run := range runs {
			repeats := 1
			if round > 0 { // round 0 measures how often to repeat
				repeats = min(1+int(benchMinimum/max(all[i][0].cpu, time.Microsecond)), maxRepeats)
			}
			var c cost
			var err error
			pprof.Do(ctx, pprof.Labels("side", run.side, "run", run.install), func(context.Context) {
				c, err = measure(run.render, repeats)
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", run.side, err)
			}
			all[i] = append(all[i], c)
		}
	}
	out := make([]cost, len(runs))
	for i, of := range all {
		out[i] = medianCost(of[1:])
	}
	return out, nil
}

// measure returns the average cost of a render. It collects garbage first, so that neither side
// pays for the other's.
func measure(render func() error, repeats int) (cost, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processCPU()
	for range repeats {
		if err := render(); err != nil {
			return cost{}, err
		}
	}
	used := processCPU() - began
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	return cost{cpu: used / time.Duration(repeats), bytes: allocated / uint64(repeats)}, nil
}

// processCPU returns the CPU time of this process, of all of its threads.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot happen: the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func medianCost(of []cost) cost {
	median := func(value func(cost) uint64) uint64 {
		values := make([]uint64, len(of))
		for i, c := range of {
			values[i] = value(c)
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	return cost{cpu: time.Duration(median(func(c cost) uint64 { return uint64(c.cpu) })),
		bytes: median(func(c cost) uint64 { return c.bytes })}
}

// renderFunc renders a stack.
type renderFunc = func(context.Context, stacks.Request) (stacks.Result, error)

// newRender returns a function that renders as a new render worker does.
func newRender() renderFunc { return stacks.NewChartCache(stacks.DefaultChartCacheBytes).Render }

// profiled writes a CPU profile of f to a file, unless its name is empty.
func profiled(file string, f func() error) (err error) {
	if file == "" {
		return f()
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}
