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

// screen writes permanent lines and, on a terminal, live lines below them that it redraws. It is
// safe for concurrent use. It ignores write errors, because there is no other place to report them.
type screen struct {
	file  *os.File
	tty   bool
	color bool

	mu   sync.Mutex
	live []string // live lines on the terminal
}

func newScreen(f *os.File) *screen {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	s := &screen{file: f, tty: err == nil && os.Getenv("TERM") != "dumb"}
	s.color = s.tty && os.Getenv("NO_COLOR") == ""
	return s
}

// size returns the size of the terminal, or a default if it is unknown.
func (s *screen) size() (columns, rows int) {
	w, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 100, 30
	}
	return int(w.Col), int(w.Row)
}

// line writes a permanent line.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.eraseLive(&b)
	fmt.Fprintf(&b, format, args...)
	b.WriteByte('\n')
	s.writeLive(&b)
	_, _ = s.file.Write(b.Bytes())
}

// draw replaces the live lines. Without a terminal it does nothing.
func (s *screen) draw(lines ...string) {
	if !s.tty {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.eraseLive(&b)
	columns, rows := s.size()
	s.live = nil
	for _, l := range lines[:min(len(lines), rows-1)] {
		s.live = append(s.live, truncate(l, columns-1))
	}
	s.writeLive(&b)
	_, _ = s.file.Write(b.Bytes())
}

// keepLive makes the live lines permanent.
func (s *screen) keepLive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = nil
	if s.tty {
		_, _ = s.file.WriteString("\x1b[?25h")
	}
}

// eraseLive moves the cursor to the first live line and clears the screen from there.
func (s *screen) eraseLive(b *bytes.Buffer) {
	if len(s.live) > 0 {
		fmt.Fprintf(b, "\r\x1b[%dA\x1b[J", len(s.live))
	}
}

// writeLive writes the live lines and hides the cursor. It does nothing without live lines.
func (s *screen) writeLive(b *bytes.Buffer) {
	if len(s.live) == 0 {
		return
	}
	b.WriteString("\x1b[?25l")
	for _, l := range s.live {
		b.WriteString(l + "\n")
	}
}

// Write writes each line as a permanent line. Other packages write their progress with it.
func (s *screen) Write(p []byte) (int, error) {
	for l := range strings.SplitSeq(strings.TrimRight(string(p), "\n"), "\n") {
		s.line("  %s", s.dim(l))
	}
	return len(p), nil
}

// spinner shows a spinner with a text and the elapsed time until stop is called. stop waits for the
// last drawing. Without a terminal spin prints a line every 15 seconds.
func (s *screen) spinner(what string) (stop func()) {
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
		s.keepLive()
	}
}

func frame(n int) string {
	const frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
	runes := []rune(frames)
	return string(runes[n%len(runes)])
}

// style wraps a text in an escape sequence if colors are enabled.
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

// truncate cuts a line so that it does not wrap. Escape sequences have no width.
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
			continue // later escape sequences are kept, because they reset colors
		default:
			room--
		}
		b.WriteRune(r)
	}
	return b.String()
}

// seconds formats a duration for users.
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
