package main

import (
	"fmt"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// State of a component, as the table has it.
const (
	waits    = "waits"
	starting = "starting"
	ready    = "ready"
)

// row is one component in the table.
type row struct {
	name      string
	wave      int
	dependsOn []string
	state     string
	applied   int // objects in the inventory that are on the cluster
	objects   int // objects that are wanted; 0: not known yet
	message   string
	began     time.Time // its turn came; zero: before the table began
	ended     time.Time // it became ready
	printed   string    // what was written last of it, off a terminal
}

// table follows an install. It knows the components and their waves from the
// stack, and how they are doing from the status.
type table struct {
	*screen
	start time.Time
	rows  []row
	foot  string
}

func newTable(s *screen, plan *stacks.Plan) *table {
	t := &table{screen: s, start: time.Now()}
	for _, c := range plan.Components {
		t.rows = append(t.rows, row{name: c.Component.Name, wave: c.Wave, dependsOn: c.Component.DependsOn})
	}
	return t
}

// show takes a status in and brings the picture up to date. The foot is about
// the install as a whole.
func (t *table) show(in *appsv1.KsctlInstall, foot string) {
	now := time.Now()
	applied, known := map[string]int{}, map[string]int{}
	if in.Status.Inventory != nil {
		for _, e := range in.Status.Inventory.Entries {
			known[e.Component]++
			if e.State != appsv1.EntryIntended {
				applied[e.Component]++
			}
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
			r.to(ready, now)
		case turn:
			r.to(starting, now)
		default:
			r.to(waits, now)
		}
	}
	t.foot = foot
	t.picture(now)
}

// to moves a component on. One that was ready when the table began has no times.
func (r *row) to(state string, now time.Time) {
	before := r.state
	r.state = state
	switch {
	case state == before:
	case state == starting:
		r.began = now
	case state == ready && before == waits:
		r.began, r.ended = now, now // too fast to be seen starting
	case state == ready:
		r.ended = now
	}
}

func (t *table) picture(now time.Time) {
	if !t.tty {
		t.print(now)
		return
	}
	lines := []string{t.dim(fmt.Sprintf("    %-4s  %-10s  %-7s  %-8s  %6s  %6s  %s", "WAVE", "COMPONENT", "OBJECTS", "STATE", "BEGAN", "TOOK", "MESSAGE"))}
	for i := range t.rows {
		lines = append(lines, t.row(&t.rows[i], now))
	}
	t.draw(append(lines, fmt.Sprintf("  %s  %s", t.bold(tenths(now.Sub(t.start))), t.foot))...)
}

// row is one line of the table.
func (t *table) row(r *row, now time.Time) string {
	mark, state := t.dim("·"), t.dim(fmt.Sprintf("%-8s", waits))
	began, took := "", ""
	if !r.began.IsZero() {
		began = "+" + tenths(r.began.Sub(t.start))
	}
	switch r.state {
	case ready:
		mark, state = t.green("✓"), t.green(fmt.Sprintf("%-8s", ready))
		if !r.began.IsZero() {
			took = tenths(r.ended.Sub(r.began))
		}
	case starting:
		n := int(now.Sub(t.start) / redraw)
		mark, state = t.cyan(frame(n)), t.yellow(fmt.Sprintf("%-8s", starting))
		took = tenths(now.Sub(r.began))
	}
	return fmt.Sprintf("  %s %-4d  %-10s  %-7s  %s  %6s  %6s  %s", mark, r.wave, r.name, r.counts(), state, began, took, t.dim(r.says()))
}

// says is the message of a component that is not ready.
func (r *row) says() string {
	if r.state == ready {
		return ""
	}
	return r.message
}

func (r *row) counts() string {
	if r.objects == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.applied, r.objects)
}

// print writes the components that changed, each in one line.
func (t *table) print(now time.Time) {
	for i := range t.rows {
		r := &t.rows[i]
		text := strings.TrimRight(fmt.Sprintf("wave %d  %-10s  %-7s  %-8s  %s", r.wave, r.name, r.counts(), r.state, r.says()), " ")
		if r.state == ready && r.began.IsZero() || text == r.printed {
			continue // was so before, or is so still
		}
		r.printed = text
		t.line("  +%-6s %s", tenths(now.Sub(t.start)), text)
	}
}

// end lets the last picture stay, with another foot.
func (t *table) end(foot string) {
	t.foot = foot
	t.picture(time.Now())
	t.settle()
	if !t.tty {
		t.line("  +%-6s %s", tenths(time.Since(t.start)), foot)
	}
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
