package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/procstat"
)

// process is the shipped controller with its resource usage.
type process struct{ *harness.Process }

func (l *benchmark) startProcess(ctx context.Context) error {
	p, err := l.h.StartProcess(ctx, l.h.Config, fmt.Sprintf("--concurrent=%d", l.concurrent))
	if err != nil {
		return err
	}
	l.process = process{p}
	return p.WaitHealthy(ctx)
}

func (p process) stop() {
	var exit *exec.ExitError
	if err := p.Stop(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "controller:", err)
	}
}

// memory returns the current and the peak resident set of the process, as text.
func (p process) memory() string {
	return fmt.Sprintf("%d MiB resident, peak %d MiB", procstat.Memory(p.Pid, "VmRSS")>>20,
		procstat.Memory(p.Pid, "VmHWM")>>20)
}

// cpuTime returns the CPU time of the process so far.
func (p process) cpuTime() time.Duration {
	if p.Process == nil {
		return 0
	}
	own, _ := procstat.CPUTime(p.Pid)
	return own
}
