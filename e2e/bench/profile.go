package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"

	"github.com/ksctl/gitops/e2e/cluster"
)

// sliceSeconds is the duration, in seconds, of each part of a CPU profile. The profile is taken in
// parts because the duration of a scenario is not known in advance.
const sliceSeconds = 2

// profile starts CPU profiling. The returned function stops it and writes the CPU profile and a
// current heap profile. Both do nothing if profiling is disabled or the peer serves no profiles.
func (s *session) profile(ctx context.Context, scenario string) (end func(ctx context.Context) error, err error) {
	if !s.options.profile || len(s.peer.processes()) == 0 || s.peer.pprofAddress() == "" {
		return func(context.Context) error { return nil }, nil
	}
	dir := filepath.Join(s.options.out, "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base, url := filepath.Join(dir, fmt.Sprintf("%s-%d-%s", scenario, len(s.specs), s.peerName)),
		"http://"+s.peer.pprofAddress()+"/debug/pprof/"
	ctx, stop := context.WithCancel(ctx)
	var parts []*profile.Profile
	failed := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			var part *profile.Profile
			// Not canceled with ctx, so that the last slice is complete.
			if part, err = fetchProfile(context.WithoutCancel(ctx),
				fmt.Sprintf("%sprofile?seconds=%d", url, sliceSeconds)); err == nil {
				parts = append(parts, part)
			}
		}
		failed <- err
	}()
	return func(ctx context.Context) error {
		stop()
		if err := <-failed; err != nil {
			return fmt.Errorf("taking a CPU profile: %w", err)
		}
		cpu, err := profile.Merge(parts)
		if err != nil {
			return fmt.Errorf("merging CPU profiles: %w", err)
		}
		// The heap profile includes all allocations since the start.
		heap, err := fetchProfile(ctx, url+"heap")
		if err != nil {
			return fmt.Errorf("taking a heap profile: %w", err)
		}
		return errors.Join(writeProfile(base+".cpu.pprof", cpu), writeProfile(base+".heap.pprof", heap))
	}, nil
}

func fetchProfile(ctx context.Context, url string) (*profile.Profile, error) {
	body, err := cluster.HTTPGet(ctx, url)
	if err != nil {
		return nil, err
	}
	return profile.ParseData([]byte(body))
}

func writeProfile(path string, p *profile.Profile) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}
