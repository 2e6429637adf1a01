package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// Server is the agent.
type Server struct {
	opts     Options
	clusters map[string]*cluster
}

// New returns an agent. It begins nothing before Run.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, clusters: map[string]*cluster{}}
	for _, c := range o.Clusters {
		s.clusters[c.Name] = newCluster(c, &s.opts)
	}
	return s, nil
}

// Register has the services answered.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	agentpb.RegisterWorkersServer(r, &workers{server: s})
	agentpb.RegisterKsctlAgentServer(r, &ksctlAgent{server: s})
}

// Run does what is begun, until ctx ends: then nothing more begins, and what runs is left for the
// next start. It returns when everything has ended; a run of the provisioner may take
// Options.StopWithin to, and is killed then.
func (s *Server) Run(ctx context.Context) {
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	var clusters, closing sync.WaitGroup
	for _, c := range s.clusters {
		clusters.Go(func() { c.run(ctx, hard) })
	}
	ended := make(chan struct{})
	closing.Go(func() {
		<-ctx.Done()
		for _, c := range s.clusters {
			c.change(func() { c.stopping = true })
		}
		t := s.opts.Clock.NewTimer(s.opts.StopWithin)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C():
			kill()
		}
	})
	clusters.Wait()
	close(ended)
	closing.Wait()
}

// Ready is true once everything can be begun.
func (s *Server) Ready() bool {
	for _, c := range s.clusters {
		if _, err := c.open(); err != nil {
			return false
		}
	}
	return true
}

// AwaitReady waits until everything can be begun, or ctx ends.
func (s *Server) AwaitReady(ctx context.Context) error {
	for _, c := range s.clusters {
		for {
			c.mu.Lock()
			loaded, changed := c.loaded, c.changed
			c.mu.Unlock()
			if loaded {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// cluster finds one by its name; "" is the only one.
func (s *Server) cluster(name string) (*cluster, error) {
	if name == "" {
		if len(s.clusters) != 1 {
			return nil, status.Errorf(codes.FailedPrecondition, "this agent has %d clusters: say which", len(s.clusters))
		}
		for _, c := range s.clusters {
			return c, nil
		}
	}
	if c := s.clusters[name]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "this agent has no cluster %.60q", name)
}

// stopTimeout is how long calls may go on when the agent ends.
const stopTimeout = 5 * time.Second
