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

// slice is how many seconds each part of a CPU profile is: how long something
// takes is not known before.
const slice = 2

// profiler takes profiles of a peer while something is measured.
type profiler struct {
	base   string // of files
	addr   string
	stop   context.CancelFunc
	done   chan struct{}
	err    error
	slices []*profile.Profile
}

// profile begins to take CPU profiles, if that was asked for and the peer has any.
func (s *session) profile(ctx context.Context, scenario string) (*profiler, error) {
	if !s.options.profile || len(s.peer.processes()) == 0 || s.peer.profiles() == "" {
		return nil, nil
	}
	dir := filepath.Join(s.options.out, "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &profiler{addr: s.peer.profiles(), stop: stop, done: make(chan struct{}),
		base: filepath.Join(dir, fmt.Sprintf("%s-%d-%s", scenario, len(s.sites), s.peerName))}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil && p.err == nil {
			// Not under ctx: the last slice is wanted too.
			part, err := fetchProfile(context.WithoutCancel(ctx), fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.addr, slice))
			if p.err = err; err == nil {
				p.slices = append(p.slices, part)
			}
		}
	}()
	return p, nil
}

// end writes what was taken: the CPU profile, and one of the heap as it is now.
func (p *profiler) end(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.stop()
	<-p.done
	if p.err != nil {
		return fmt.Errorf("take a CPU profile: %w", p.err)
	}
	cpu, err := profile.Merge(p.slices)
	if err != nil {
		return fmt.Errorf("join CPU profiles: %w", err)
	}
	// Allocations since the start come with it.
	heap, err := fetchProfile(ctx, "http://"+p.addr+"/debug/pprof/heap")
	if err != nil {
		return fmt.Errorf("take a heap profile: %w", err)
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
