package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"
)

// sliceSeconds is the duration, in seconds, of each part of a CPU profile. The profile is taken in
// parts because the duration of a scenario is not known in advance.
const sliceSeconds = 2

// profiler takes profiles of a peer during a measurement.
type profiler struct {
	base   string // path of the files without suffix
	addr   string
	stop   context.CancelFunc
	done   chan struct{}
	err    error
	slices []*profile.Profile
}

// profile starts CPU profiling. It returns nil if profiling is disabled or the peer serves no
// profiles.
func (s *session) profile(ctx context.Context, scenario string) (*profiler, error) {
	if !s.options.profile || len(s.peer.processes()) == 0 || s.peer.pprofAddress() == "" {
		return nil, nil
	}
	dir := filepath.Join(s.options.out, "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &profiler{addr: s.peer.pprofAddress(), stop: stop, done: make(chan struct{}),
		base: filepath.Join(dir, fmt.Sprintf("%s-%d-%s", scenario, len(s.specs), s.peerName))}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil && p.err == nil {
			// Not canceled with ctx, so that the last slice is complete.
			part, err := fetchProfile(context.WithoutCancel(ctx), fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.addr, sliceSeconds))
			if p.err = err; err == nil {
				p.slices = append(p.slices, part)
			}
		}
	}()
	return p, nil
}

// end stops profiling and writes the CPU profile and a current heap profile. It does nothing for
// nil.
func (p *profiler) end(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.stop()
	<-p.done
	if p.err != nil {
		return fmt.Errorf("taking a CPU profile: %w", p.err)
	}
	cpu, err := profile.Merge(p.slices)
	if err != nil {
		return fmt.Errorf("merging CPU profiles: %w", err)
	}
	// The heap profile includes all allocations since the start.
	heap, err := fetchProfile(ctx, "http://"+p.addr+"/debug/pprof/heap")
	if err != nil {
		return fmt.Errorf("taking a heap profile: %w", err)
	}
	return errors.Join(writeProfile(p.base+".cpu.pprof", cpu), writeProfile(p.base+".heap.pprof", heap))
}

func fetchProfile(ctx context.Context, url string) (*profile.Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	return profile.ParseData(body)
}

func writeProfile(path string, p *profile.Profile) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}
