package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{
		{"short", 10, "short"},
		{"exactly", 7, "exactly"},
		{"much too long", 4, "much"},
		{"→→→→", 2, "→→"},
		{"\x1b[31mred and long\x1b[0m", 3, "\x1b[31mred\x1b[0m"},
		{"", 0, ""},
	} {
		if got := truncate(c.line, c.columns); got != c.want {
			t.Errorf("%q to %d columns: %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

// newFileScreen returns a screen that writes to a file, and a function that reads the file.
func newFileScreen(t *testing.T, tty bool) (*screen, func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "paper")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &screen{file: f, tty: tty}, func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestScreenRedrawsLiveLines(t *testing.T) {
	s, read := newFileScreen(t, true)
	s.draw("one", "two")
	s.line("stays")
	s.draw("three")
	s.keepLive()
	s.line("end")
	want := "\x1b[?25lone\ntwo\n" + // live lines, with the cursor hidden
		"\r\x1b[2A\x1b[Jstays\n\x1b[?25lone\ntwo\n" + // the permanent line above them
		"\r\x1b[2A\x1b[J\x1b[?25lthree\n" +
		"\x1b[?25h" + "end\n"
	if got := read(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScreenWithoutTerminal(t *testing.T) {
	s, read := newFileScreen(t, false)
	s.draw("is not written")
	stop := s.spinner("neither is this")
	stop()
	s.line("%s", s.red("plain"))
	s.keepLive()
	if got := read(); got != "plain\n" {
		t.Errorf("got %q", got)
	}
}

func TestTableShowsWaves(t *testing.T) {
	s, read := newFileScreen(t, false)
	plan := &stacks.ResolvedStack{Components: []stacks.ResolvedComponent{
		{Component: &stacks.Component{Name: "a"}},
		{Component: &stacks.Component{Name: "b", DependsOn: []string{"a"}}, Wave: 1},
	}}
	table := newTable(s, plan)
	in := &appsv1.KsctlInstall{}
	table.show(in, "")
	entry := func(component string, state appsv1.EntryState) {
		in.Status.Inventory.Entries = append(in.Status.Inventory.Entries,
			appsv1.InventoryEntry{ID: component, Component: component, State: state})
	}
	in.Status.Inventory = &appsv1.Inventory{}
	entry("a", appsv1.EntryApplied)
	entry("b", appsv1.EntryIntended)
	in.Status.Components = []appsv1.ComponentStatus{{Name: "a", Objects: 1, Message: "almost"},
		{Name: "b", Objects: 1, Message: "waits for a"}}
	table.show(in, "")
	table.show(in, "") // no change, no output
	in.Status.Components[0].Ready = true
	in.Status.Components[1].Message = ""
	table.show(in, "")
	in.Status.Inventory.Entries[1].State = appsv1.EntryApplied
	in.Status.Components[1].Ready = true
	table.show(in, "")
	table.end("done")
	want := []string{
		"wave 0  a           -        waiting", "wave 1  b           -        waiting",
		"wave 0  a           1/1      starting  almost", "wave 1  b           0/1      waiting   waits for a",
		"wave 0  a           1/1      ready", "wave 1  b           0/1      starting",
		"wave 1  b           1/1      ready", "done",
	}
	var got []string
	for l := range strings.Lines(read()) {
		got = append(got, strings.TrimSpace(l[len("  +0.0s   "):]))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if a := table.rows[0]; a.started.IsZero() || a.becameReady.Before(a.started) ||
		time.Since(a.becameReady) > time.Minute {
		t.Errorf("times %v, %v", a.started, a.becameReady)
	}
}
