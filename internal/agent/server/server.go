package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server is the agent.
type Server struct {
	opts     Options
	clusters map[string]*clusterScaler
}

// New returns an agent. It executes no operation before Run.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, clusters: map[string]*clusterScaler{}}
	for _, c := range o.Clusters {
		s.clusters[c.Name] = newClusterScaler(c, &s.opts)
	}
	return s, nil
}

// Run executes operations until ctx ends. Then no new operation starts, and running ones are
// interrupted; they resume at the next start. Run returns when all of them have stopped. A running
// provisioner may continue for Options.StopTimeout and is then killed.
func (s *Server) Run(ctx context.Context) {
	killCtx, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	var clusters, closing sync.WaitGroup
	for _, c := range s.clusters {
		clusters.Go(func() { c.run(ctx, killCtx) })
	}
	ended := make(chan struct{})
	closing.Go(func() {
		<-ctx.Done()
		for _, c := range s.clusters {
			c.update(func() { c.stopping = true })
		}
		select {
		case <-ended:
		case <-time.After(s.opts.StopTimeout):
			kill()
		}
	})
	clusters.Wait()
	close(ended)
	closing.Wait()
}

// Ready reports whether operations of every cluster can be started.
func (s *Server) Ready() bool {
	for _, c := range s.clusters {
		if _, err := c.loadedOperations(); err != nil {
			return false
		}
	}
	return true
}

// AwaitReady waits until the recorded operations of every cluster are loaded, or ctx ends.
func (s *Server) AwaitReady(ctx context.Context) error {
	for _, c := range s.clusters {
		if err := c.waitUntil(ctx, func() bool { return c.loaded }); err != nil {
			return err
		}
	}
	return nil
}

// findCluster returns the cluster with a name; "" selects the only cluster. Errors are gRPC status
// errors.
func (s *Server) findCluster(name string) (*clusterScaler, error) {
	if name == "" {
		if len(s.clusters) != 1 {
			return nil, status.Errorf(codes.FailedPrecondition, "this agent has %d clusters: name one of them",
				len(s.clusters))
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

// callStopTimeout is how long running calls may continue when the agent shuts down.
const callStopTimeout = 5 * time.Second
