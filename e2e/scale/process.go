package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ksctl/gitops/e2e/harness"
)

// process is the shipped controller with its resource usage.
type process struct{ *harness.Process }

func startProcess(ctx context.Context, h *harness.Harness, concurrent int) (process, error) {
	p, err := h.StartProcess(ctx, h.Config, fmt.Sprintf("--concurrent=%d", concurrent))
	if err != nil {
		return process{}, err
	}
	return process{p}, p.WaitHealthy(ctx)
}

func (p process) stop() {
	var exit *exec.ExitError
	if err := p.Stop(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "controller:", err)
	}
}

// memory returns the current and the peak resident set of the process, as text.
func (p process) memory() string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	var now, peak int
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "VmRSS:"); ok {
			_, _ = fmt.Sscan(v, &now)
		}
		if v, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			_, _ = fmt.Sscan(v, &peak)
		}
	}
	return fmt.Sprintf("%d MiB resident, peak %d MiB", now>>10, peak>>10)
}

// cpuTime returns the CPU time of the process so far.
func (p process) cpuTime() time.Duration {
	if p.Process == nil {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var user, system int
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * time.Second / 100 // USER_HZ is 100 on Linux
}
