package tools

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reporter writes progress lines about one program.
type reporter struct {
	mu      sync.Mutex
	out     io.Writer
	subject string
	start   time.Time
}

// report writes one line with a state and the time since the reporter's start.
func (p *reporter) report(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A write error of progress must not fail a build.
	_, _ = fmt.Fprintf(p.out, "tools: %s: %s, %s\n", p.subject, state, time.Since(p.start).Round(time.Second))
}

// reportPeriodically reports state every [heartbeat] until stop is called. stop waits for a line
// that is being written.
func (p *reporter) reportPeriodically(state string) (stop func()) {
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
				p.report(state)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
