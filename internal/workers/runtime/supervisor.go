package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// stableTime is how long workerd must run so that its end is not a repeated one.
const stableTime = time.Minute

// configFile is the name of the file with workerd's configuration, which is read at its start.
const configFile = "workerd.capnp"

// supervisor runs one workerd at a time, or two while the new one replaces the old one.
type supervisor struct {
	Options

	listeners map[string]*workerd.Listener
	current   *workerd.Process // nil if none runs
	started   time.Time        // of current
	failures  int              // in a row
	// attempted are the versions of the Secrets with which workerd was started last, also if that
	// failed.
	attempted string

	serving atomic.Bool // the sockets of current listen, and Run's context has not ended
	// replaced waits for processes that were replaced.
	replaced sync.WaitGroup
}

// Run serves workers until ctx ends, and then as long as Options.Drain and Options.Grace permit.
func Run(ctx context.Context, o Options) (err error) {
	s := &supervisor{Options: o, listeners: map[string]*workerd.Listener{}}
	defer func() { err = errors.Join(err, s.closeListeners()) }()
	for _, w := range o.Workers {
		address := net.JoinHostPort(o.listenHost, strconv.Itoa(w.Port))
		if s.listeners[w.Name], err = workerd.Listen(ctx, address); err != nil {
			return fmt.Errorf("worker %s: %w", w.Name, err)
		}
	}
	stopHealth, err := s.serveHealth(ctx)
	if err != nil {
		return err
	}
	defer stopHealth()
	s.loop(ctx)
	return s.shutdown()
}

func (s *supervisor) closeListeners() (err error) {
	for _, l := range s.listeners {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// loop keeps workerd running with the current Secrets until ctx ends.
func (s *supervisor) loop(ctx context.Context) {
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	restart := time.NewTimer(0)
	defer restart.Stop()
	seen := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-restart.C:
			if !s.start(ctx) {
				restart.Reset(s.backoff())
			}
		case <-s.exited():
			s.ended()
			restart.Reset(s.backoff())
		case <-poll.C:
			// A change is applied when it is the same at two polls: several Secrets often change
			// together.
			versions := s.secretVersions()
			if versions == seen && versions != s.attempted {
				restart.Reset(0)
			}
			seen = versions
		}
	}
}

// exited returns a channel that is closed when the current process has ended.
func (s *supervisor) exited() <-chan struct{} {
	if s.current == nil {
		return nil
	}
	return s.current.Exited()
}

// ended records that the current process ended by itself.
func (s *supervisor) ended() {
	s.serving.Store(false)
	if time.Since(s.started) > stableTime {
		s.failures = 0
	}
	s.failures++
	s.Log.Error("workerd ended", "state", s.current.State(), "after", time.Since(s.started).Round(time.Millisecond))
	s.current = nil
}

// backoff returns the delay before the next start.
func (s *supervisor) backoff() time.Duration {
	return min(s.MinBackoff<<min(max(s.failures-1, 0), 16), s.MaxBackoff)
}

// start starts a workerd with the current Secrets, and stops the one before when the new one
// serves. It reports whether workerd runs with these Secrets.
func (s *supervisor) start(ctx context.Context) bool {
	s.attempted = s.secretVersions()
	workers, env, err := s.configuration()
	if err == nil {
		var p *workerd.Process
		if p, err = s.startProcess(ctx, workers, env); err == nil {
			s.replace(p)
			return true
		}
	}
	if ctx.Err() != nil {
		return true
	}
	s.failures++
	s.Log.Error("workerd could not be started", "error", err, "next", s.backoff())
	// An old process goes on with the Secrets that it has.
	return false
}

// startProcess starts workerd and waits until its sockets listen.
func (s *supervisor) startProcess(ctx context.Context, workers []workerd.Worker,
	env []string) (*workerd.Process, error) {
	p, err := workerd.Start(workerd.Options{Program: s.Workerd, Workers: workers, Networks: s.Networks,
		ConfigFile: filepath.Join(s.Dir, configFile), Listeners: s.listeners, Env: env, Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(s.StartTimeout)
	defer timeout.Stop()
	select {
	case <-p.Listening():
		return p, nil
	case <-p.Exited():
		return nil, fmt.Errorf("workerd ended with %s before it served: its last lines in the log have the cause",
			p.State())
	case <-timeout.C:
		p.Stop(0)
		return nil, fmt.Errorf("workerd did not load the scripts in %s", s.StartTimeout)
	case <-ctx.Done():
		p.Stop(0)
		return nil, ctx.Err()
	}
}

// replace makes p the current process. The one before responds to its requests and ends.
func (s *supervisor) replace(p *workerd.Process) {
	old := s.current
	s.current, s.started = p, time.Now()
	s.serving.Store(true)
	if old == nil {
		s.Log.Info("workerd serves", "workers", len(s.Workers))
		return
	}
	s.failures = 0
	s.Log.Info("workerd serves with changed Secrets", "workers", len(s.Workers))
	s.replaced.Go(func() {
		if !old.Stop(s.Grace) {
			s.Log.Warn("the replaced workerd had requests after its grace period", "grace", s.Grace)
		}
	})
}

// shutdown serves as long as Drain, and stops workerd.
func (s *supervisor) shutdown() error {
	s.serving.Store(false)
	defer s.replaced.Wait()
	if s.current == nil {
		return nil
	}
	s.Log.Info("stopping", "drain", s.Drain, "grace", s.Grace)
	drain := time.NewTimer(s.Drain)
	defer drain.Stop()
	select {
	case <-drain.C:
	case <-s.current.Exited():
	}
	if !s.current.Stop(s.Grace) {
		return fmt.Errorf("workerd had requests after its grace period of %s, and was killed", s.Grace)
	}
	return nil
}
