package runtime

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// healthWorker is the name of a service of workerd that only the supervisor uses. No script can
// have this name.
const healthWorker = ":health"

// healthSource responds to each request.
const healthSource = `export default { fetch() { return new Response("ok"); } };`

// process is a workerd with the address of its healthWorker.
type process struct {
	*workerd.Process

	health string
}

// probes are the requests to the healthWorker of a process.
type probes struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// stop stops the probes. It may be called again.
func (p *probes) stop() {
	if p != nil {
		p.cancel()
		<-p.done
	}
}

// startProbes checks regularly whether p responds: all scripts share one event loop, and an endless
// loop of one of them stops it. A process that does not respond is killed.
func (s *supervisor) startProbes(p *process) *probes {
	ctx, cancel := context.WithCancel(context.Background())
	out := &probes{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(out.done)
		if s.probe(ctx, p) {
			return
		}
		s.Log.Error("workerd does not respond and is killed: a script may have an endless loop", "pid", p.PID(),
			"failures", s.HealthFailures, "timeout", s.HealthTimeout.String())
		p.Stop(0)
	}()
	return out
}

// probe returns true when ctx ends or p has exited, and false when p does not respond.
func (s *supervisor) probe(ctx context.Context, p *process) bool {
	timer := time.NewTimer(s.HealthInterval)
	defer timer.Stop()
	// Each request has its own connection, because a process must accept them, too.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: s.HealthTimeout}
	for failures := 0; failures < s.HealthFailures; {
		select {
		case <-ctx.Done():
			return true
		case <-p.Exited():
			return true
		case <-timer.C:
		}
		err := request(ctx, client, "http://"+p.health)
		switch {
		case ctx.Err() != nil:
			return true
		case err != nil:
			failures++
			s.Log.Warn("workerd did not respond to a health check", "pid", p.PID(), "error", err.Error(), "failures",
				failures)
		default:
			failures = 0
		}
		s.unresponsive.Store(failures > 0)
		timer.Reset(s.HealthInterval)
	}
	return false
}

func request(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
