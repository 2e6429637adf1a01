package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/internal/renderworker"
	"github.com/ksctl/gitops/stacks"
)

// Rendering bounds what stacks may take to render.
type Rendering struct {
	Workers     int
	Timeout     time.Duration
	MemoryBytes int64
	OutputBytes int64
}

func (r *Rendering) bindFlags(fs *pflag.FlagSet) {
	fs.IntVar(&r.Workers, "render-workers", renderworker.DefaultWorkers, "The number of processes that stacks are rendered in; 0 renders in the controller's own, where a render that loops or eats memory can't be stopped.")
	fs.DurationVar(&r.Timeout, "render-timeout", renderworker.DefaultTimeout, "How long a stack may take to render.")
	fs.Int64Var(&r.MemoryBytes, "render-max-memory-bytes", renderworker.DefaultMemoryBytes, "The memory that a process that renders may take, in bytes.")
	fs.Int64Var(&r.OutputBytes, "render-max-output-bytes", renderworker.DefaultOutputBytes, "What a stack may render at most, in bytes of JSON.")
}

func (r *Rendering) validate() error {
	switch {
	case r.Workers < 0:
		return fmt.Errorf("--render-workers %d: want at least 0", r.Workers)
	case r.Timeout <= 0:
		return fmt.Errorf("--render-timeout %s: want more than 0", r.Timeout)
	case r.MemoryBytes < renderworker.MinMemoryBytes:
		return fmt.Errorf("--render-max-memory-bytes %d: want at least %d", r.MemoryBytes, int64(renderworker.MinMemoryBytes))
	case r.OutputBytes < renderworker.MinOutputBytes || r.OutputBytes > renderworker.MaxOutputBytes:
		return fmt.Errorf("--render-max-output-bytes %d: want %d to %d", r.OutputBytes, int64(renderworker.MinOutputBytes), int64(renderworker.MaxOutputBytes))
	}
	return nil
}

// renderFunc renders stacks as the options say.
func (p *process) renderFunc() func(context.Context, stacks.Request) (stacks.Result, error) {
	r, program := p.opts.Render, p.opts.RenderProgram
	if r.Workers == 0 || len(program) == 0 {
		return renderworker.InProcess(r.Timeout, r.OutputBytes)
	}
	p.pool = renderworker.New(renderworker.Options{Workers: r.Workers, Timeout: r.Timeout, MemoryBytes: r.MemoryBytes, OutputBytes: r.OutputBytes,
		Program: program[0], Args: program[1:], Log: ctrl.Log.WithName("render")})
	return p.pool.Render
}
