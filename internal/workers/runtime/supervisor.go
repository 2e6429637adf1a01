package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

	ports    map[string]*workerd.Port
	current  *process  // nil if none runs
	probes   *probes   // of current
	started  time.Time // of current
	failures int       // in a row
	// attempted are the versions of the Secrets with which workerd was started last, also if that
	// failed.
	attempted string

	serving atomic.Bool // the sockets of current listen, and Run's context has not ended
	// unresponsive is true if the last health check of current failed.
	unresponsive atomic.Bool
	// replaced is closed when the process before current has ended; nil if there was none.
	replaced chan struct{}
}

// Run serves workers until ctx ends, and then as long as Options.Drain and Options.Grace permit.
func Run(ctx context.Context, o Options) (err error) {
	s := &supervisor{Options: o, ports: map[string]*workerd.Port{}}
	defer func() { err = errors.Join(err, s.closePorts()) }()
	for _, w := range o.Workers {
		port, err := workerd.ListenPort(ctx, o.listenHost, w.Port)
		if err != nil {
			return fmt.Errorf("worker %s: %w", w.Name, err)
		}
		s.ports[w.Name] = port
	}
	stopHealth, err := s.serveHealth(ctx)
	if err != nil {
		return err
	}
	defer stopHealth()
	s.loop(ctx)
	return s.shutdown()
}

func (s *supervisor) closePorts() (err error) {
	for _, p := range s.ports {
		err = errors.Join(err, p.Close())
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
			if s.current != nil && s.isReplacing() {
				restart.Reset(s.Poll)
			} else if !s.start(ctx) {
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
	s.probes.stop()
	if time.Since(s.started) > stableTime {
		s.failures = 0
	}
	s.failures++
	s.Log.Error("workerd ended", "state", s.current.State(),
		"after", time.Since(s.started).Round(time.Millisecond).String())
	s.current = nil
}

// backoff returns the delay before the next start.
func (s *supervisor) backoff() time.Duration {
	return min(s.MinBackoff<<min(max(s.failures-1, 0), 16), s.MaxBackoff)
}

// isReplacing reports whether the process before the current one has not ended. A port has two
// sockets then, and no third one.
func (s *supervisor) isReplacing() bool {
	if s.replaced == nil {
		return false
	}
	select {
	case <-s.replaced:
		return false
	default:
		return true
	}
}

// start starts a workerd with the current Secrets, and stops the one before when the new one
// serves. It reports whether workerd runs with these Secrets.
func (s *supervisor) start(ctx context.Context) bool {
	s.attempted = s.secretVersions()
	err := s.startCurrent(ctx)
	if err == nil || ctx.Err() != nil {
		return true
	}
	s.failures++
	// An old process goes on with the Secrets that it has.
	s.Log.Error("workerd could not be started", "error", err.Error(), "next", s.backoff().String())
	return false
}

func (s *supervisor) startCurrent(ctx context.Context) error {
	workers, env, err := s.configuration()
	if err != nil {
		return err
	}
	listeners := map[string]*workerd.Listener{}
	if s.current == nil {
		// Connections may wait at the sockets of the process that ended.
		for name, port := range s.ports {
			listeners[name] = port.Current()
		}
	} else if err := s.openNext(ctx, listeners); err != nil {
		return errors.Join(err, s.discard(listeners))
	}
	p, err := s.startProcess(ctx, workers, listeners, env)
	if err != nil {
		return errors.Join(err, s.discard(listeners))
	}
	return s.replace(p, listeners)
}

// openNext opens the sockets of the next process.
func (s *supervisor) openNext(ctx context.Context, listeners map[string]*workerd.Listener) error {
	for name, port := range s.ports {
		next, err := port.Next(ctx)
		if err != nil {
			return err
		}
		listeners[name] = next
	}
	return nil
}

// discard closes the sockets of a process that did not start.
func (s *supervisor) discard(listeners map[string]*workerd.Listener) (err error) {
	for name, l := range listeners {
		err = errors.Join(err, s.ports[name].Discard(l))
	}
	return err
}

// startProcess starts workerd and waits until its sockets listen.
func (s *supervisor) startProcess(ctx context.Context, workers []workerd.Worker,
	listeners map[string]*workerd.Listener, env []string) (*process, error) {
	health, err := workerd.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("listening for health checks of workerd: %w", err)
	}
	listeners = maps.Clone(listeners)
	listeners[healthWorker] = health
	workers = append(workers, workerd.Worker{Name: healthWorker, Source: healthSource, Address: health.Addr().String()})
	started, err := workerd.Start(workerd.Options{Program: s.Workerd, Workers: workers, Networks: s.Networks,
		ConfigFile: filepath.Join(s.Dir, configFile), Listeners: listeners, Env: env, Stdout: os.Stdout,
		Stderr: os.Stderr})
	if err = errors.Join(err, health.Close()); err != nil {
		if started != nil {
			started.Stop(0)
		}
		return nil, err
	}
	p := &process{Process: started, health: health.Addr().String()}
	return p, s.awaitListening(ctx, p)
}

// awaitListening waits until the sockets of p listen, and stops p if they do not.
func (s *supervisor) awaitListening(ctx context.Context, p *process) error {
	timeout := time.NewTimer(s.StartTimeout)
	defer timeout.Stop()
	select {
	case <-p.Listening():
		return nil
	case <-p.Exited():
		return fmt.Errorf("workerd ended with %s before it served: the lines before this one have the cause",
			p.State())
	case <-timeout.C:
		p.Stop(0)
		return fmt.Errorf("workerd did not load the scripts in %s", s.StartTimeout)
	case <-ctx.Done():
		p.Stop(0)
		return ctx.Err()
	}
}

// replace makes p the current process. The one before responds to its requests and ends.
func (s *supervisor) replace(p *process, listeners map[string]*workerd.Listener) error {
	var err error
	for name, l := range listeners {
		err = errors.Join(err, s.ports[name].Switch(l))
	}
	old := s.current
	s.probes.stop()
	s.unresponsive.Store(false)
	s.current, s.started, s.probes = p, time.Now(), s.startProbes(p)
	s.serving.Store(true)
	if old == nil {
		s.Log.Info("workerd serves", "workers", len(s.Workers))
		return err
	}
	s.failures = 0
	s.Log.Info("workerd serves with changed Secrets", "workers", len(s.Workers))
	replaced := make(chan struct{})
	s.replaced = replaced
	go func() { // shutdown waits for it
		defer close(replaced)
		select {
		case <-time.After(s.Settle):
		case <-old.Exited():
		}
		if !old.Stop(s.Grace) {
			s.Log.Warn("the replaced workerd had requests after its grace period", "grace", s.Grace.String())
		}
	}()
	return err
}

// shutdown serves as long as Drain, and stops workerd.
func (s *supervisor) shutdown() error {
	s.serving.Store(false)
	s.probes.stop()
	if s.replaced != nil {
		defer func() { <-s.replaced }()
	}
	if s.current == nil {
		return nil
	}
	s.Log.Info("stopping", "drain", s.Drain.String(), "grace", s.Grace.String())
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
