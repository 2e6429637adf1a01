package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// screen writes lines that stay, and below them on a terminal a few that are
// drawn anew again and again. It is safe for concurrent use. What can't be
// written is lost: there is nobody left to tell.
type screen struct {
	file  *os.File
	tty   bool
	color bool

	mu   sync.Mutex
	live []string
}

func newScreen(f *os.File) *screen {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	s := &screen{file: f, tty: err == nil && os.Getenv("TERM") != "dumb"}
	s.color = s.tty && os.Getenv("NO_COLOR") == ""
	return s
}

// size of the terminal, or what is usual when it does not say.
func (s *screen) size() (columns, rows int) {
	w, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 100, 30
	}
	return int(w.Col), int(w.Row)
}

// line writes a line that stays.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	fmt.Fprintf(&b, format, args...)
	b.WriteByte('\n')
	s.paint(&b)
	_, _ = s.file.Write(b.Bytes())
}

// draw replaces the lines that are drawn anew. Off a terminal it does nothing.
func (s *screen) draw(lines ...string) {
	if !s.tty {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	columns, rows := s.size()
	s.live = nil
	for _, l := range lines[:min(len(lines), rows-1)] {
		s.live = append(s.live, truncate(l, columns-1))
	}
	s.paint(&b)
	_, _ = s.file.Write(b.Bytes())
}

// settle lets the lines that were drawn last stay.
func (s *screen) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = nil
	if s.tty {
		_, _ = s.file.WriteString("\x1b[?25h")
	}
}

func (s *screen) close() { s.settle() }

// erase goes back to the first live line and clears from there.
func (s *screen) erase(b *bytes.Buffer) {
	if len(s.live) > 0 {
		fmt.Fprintf(b, "\r\x1b[%dA\x1b[J", len(s.live))
	}
}

// paint writes the live lines, with the cursor hidden as long as there are any.
func (s *screen) paint(b *bytes.Buffer) {
	if len(s.live) == 0 {
		return
	}
	b.WriteString("\x1b[?25l")
	for _, l := range s.live {
		b.WriteString(l + "\n")
	}
}

// Write makes a line that stays of each line, for the progress of others.
func (s *screen) Write(p []byte) (int, error) {
	for l := range strings.SplitSeq(strings.TrimRight(string(p), "\n"), "\n") {
		s.line("  %s", s.dim(l))
	}
	return len(p), nil
}

// spin draws what is going on, with the time, until the returned function is
// called; that waits for the last drawing. Off a terminal it says so every 15
// seconds.
func (s *screen) spin(what string) (stop func()) {
	every := 100 * time.Millisecond
	if !s.tty {
		every = 15 * time.Second
	}
	began, done := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			s.draw(fmt.Sprintf("%s %s %s", s.cyan(frame(n)), what, s.dim(seconds(time.Since(began)))))
			select {
			case <-done:
				return
			case <-tick.C:
				if !s.tty {
					s.line("  %s %s", what, seconds(time.Since(began)))
				}
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		s.draw()
		s.settle()
	}
}

func frame(n int) string {
	const frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	runes := []rune(frames)
	return string(runes[n%len(runes)])
}

// style wraps a text in an escape sequence where colours are wanted.
func (s *screen) style(code, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string   { return s.style("1", text) }
func (s *screen) dim(text string) string    { return s.style("2", text) }
func (s *screen) red(text string) string    { return s.style("31", text) }
func (s *screen) green(text string) string  { return s.style("32", text) }
func (s *screen) yellow(text string) string { return s.style("33", text) }
func (s *screen) cyan(text string) string   { return s.style("36", text) }

// truncate cuts a line so that it does not wrap. Escape sequences take no room.
func truncate(line string, columns int) string {
	var b strings.Builder
	room, escape := columns, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case room <= 0:
			continue // later sequences still count: they end colours
		default:
			room--
		}
		b.WriteRune(r)
	}
	return b.String()
}

// seconds is a duration as people read it.
func seconds(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}
