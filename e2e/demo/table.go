package main

import (
	"fmt"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// States of a component in the table.
const (
	waiting  = "waiting"
	starting = "starting"
	ready    = "ready"
)

// row is one component in the table.
type row struct {
	name        string
	wave        int
	dependsOn   []string
	state       string
	applied     int       // objects in the inventory that exist on the cluster
	objects     int       // desired objects; 0 if not known yet
	message     string    // "" if it is ready
	started     time.Time // start of the component; zero if it started before the table
	becameReady time.Time // when the component became ready
	printed     string    // last printed line, without a terminal
}

// table shows the progress of an install. Components and waves come from the plan, their progress
// from the install's status.
type table struct {
	*screen
	start time.Time
	rows  []row
	foot  string
}

func newTable(s *screen, plan *stacks.ResolvedStack) *table {
	t := &table{screen: s, start: time.Now()}
	for _, c := range plan.Components {
		t.rows = append(t.rows, row{name: c.Component.Name, wave: c.Wave, dependsOn: c.Component.DependsOn})
	}
	return t
}

// show updates the table from the install's status and redraws it. The foot describes the install
// as a whole.
func (t *table) show(in *appsv1.KsctlInstall, foot string) {
	now := time.Now()
	applied, known := map[string]int{}, map[string]int{}
	for _, e := range inventory(in) {
		known[e.Component]++
		if e.State != appsv1.EntryIntended {
			applied[e.Component]++
		}
	}
	status := map[string]appsv1.ComponentStatus{}
	for _, c := range in.Status.Components {
		status[c.Name] = c
	}
	for i := range t.rows {
		r := &t.rows[i]
		c := status[r.name]
		r.applied, r.objects, r.message = applied[r.name], int(c.Objects), c.Message
		turn := known[r.name] > 0
		for _, dep := range r.dependsOn {
			turn = turn && status[dep].Ready
		}
		switch {
		case c.Ready:
			r.setState(ready, now)
			r.message = ""
		case turn:
			r.setState(starting, now)
		default:
			r.setState(waiting, now)
		}
	}
	t.foot = foot
	t.update(now)
}

// setState sets the state of a component and its times. A component that was ready before the table
// began has no times.
func (r *row) setState(state string, now time.Time) {
	before := r.state
	r.state = state
	switch {
	case state == before:
	case state == starting:
		r.started = now
	case state == ready && before == waiting:
		r.started, r.becameReady = now, now // the component started and became ready between two updates
	case state == ready:
		r.becameReady = now
	}
}

func (t *table) update(now time.Time) {
	if !t.tty {
		t.print(now)
		return
	}
	lines := []string{t.dim(fmt.Sprintf("    %-4s  %-10s  %-7s  %-8s  %6s  %6s  %s", "WAVE", "COMPONENT", "OBJECTS",
		"STATE", "BEGAN", "TOOK", "MESSAGE"))}
	for i := range t.rows {
		lines = append(lines, t.row(&t.rows[i], now))
	}
	t.draw(append(lines, fmt.Sprintf("  %s  %s", t.bold(tenths(now.Sub(t.start))), t.foot))...)
}

// row formats one line of the table.
func (t *table) row(r *row, now time.Time) string {
	mark, state := t.dim("·"), t.dim(fmt.Sprintf("%-8s", waiting))
	began, took := "", ""
	if !r.started.IsZero() {
		began = "+" + tenths(r.started.Sub(t.start))
	}
	switch r.state {
	case ready:
		mark, state = t.green("✓"), t.green(fmt.Sprintf("%-8s", ready))
		if !r.started.IsZero() {
			took = tenths(r.becameReady.Sub(r.started))
		}
	case starting:
		n := int(now.Sub(t.start) / redraw)
		mark, state = t.cyan(frame(n)), t.yellow(fmt.Sprintf("%-8s", starting))
		took = tenths(now.Sub(r.started))
	}
	return fmt.Sprintf("  %s %-4d  %-10s  %-7s  %s  %6s  %6s  %s", mark, r.wave, r.name, r.counts(), state, began, took,
		t.dim(r.message))
}

func (r *row) counts() string {
	if r.objects == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.applied, r.objects)
}

// print prints one line for each changed component.
func (t *table) print(now time.Time) {
	for i := range t.rows {
		r := &t.rows[i]
		text := strings.TrimRight(fmt.Sprintf("wave %d  %-10s  %-7s  %-8s  %s", r.wave, r.name, r.counts(), r.state,
			r.message), " ")
		if r.state == ready && r.started.IsZero() || text == r.printed {
			continue // ready before the table began, or unchanged
		}
		r.printed = text
		t.line("  +%-6s %s", tenths(now.Sub(t.start)), text)
	}
}

// end redraws the table with a final foot and makes it permanent.
func (t *table) end(foot string) {
	t.foot = foot
	t.update(time.Now())
	t.keepLive()
	if !t.tty {
		t.line("  +%-6s %s", tenths(time.Since(t.start)), foot)
	}
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
