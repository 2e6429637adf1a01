package tools

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reporter writes progress lines about one program.
type reporter struct {
	mu    sync.Mutex
	out   io.Writer
	what  string
	start time.Time
}

// say writes one line with the time since the reporter began.
func (p *reporter) say(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Progress that can't be written is no reason to fail a build.
	_, _ = fmt.Fprintf(p.out, "tools: %s: %s, %s\n", p.what, state, time.Since(p.start).Round(time.Second))
}

// beat repeats state every [heartbeat] until the returned function is called,
// which waits for the last line to be written.
func (p *reporter) beat(state string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.say(state)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
