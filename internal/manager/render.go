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

// RenderOptions limits the resources of a render.
type RenderOptions struct {
	Workers     int
	Timeout     time.Duration
	MemoryBytes int64
	OutputBytes int64
}

func (r *RenderOptions) bindFlags(fs *pflag.FlagSet) {
	fs.IntVar(&r.Workers, "render-workers", renderworker.DefaultWorkers,
		"The number of worker processes that render stacks. With 0, stacks are rendered in the controller process, "+
			"where a render that loops or exhausts memory cannot be stopped.")
	fs.DurationVar(&r.Timeout, "render-timeout", renderworker.DefaultTimeout, "The timeout of rendering one stack.")
	fs.Int64Var(&r.MemoryBytes, "render-max-memory-bytes", renderworker.DefaultMemoryBytes,
		"The maximum memory of a render worker process, in bytes.")
	fs.Int64Var(&r.OutputBytes, "render-max-output-bytes", renderworker.DefaultOutputBytes,
		"The maximum size of the output of one render, in bytes of JSON.")
}

func (r *RenderOptions) validate() error {
	switch {
	case r.Workers < 0:
		return fmt.Errorf("--render-workers %d: must be at least 0", r.Workers)
	case r.Timeout <= 0:
		return fmt.Errorf("--render-timeout %s: must be greater than 0", r.Timeout)
	case r.MemoryBytes < renderworker.MinMemoryBytes:
		return fmt.Errorf("--render-max-memory-bytes %d: must be at least %d", r.MemoryBytes,
			int64(renderworker.MinMemoryBytes))
	case r.OutputBytes < renderworker.MinOutputBytes || r.OutputBytes > renderworker.MaxOutputBytes:
		return fmt.Errorf("--render-max-output-bytes %d: must be between %d and %d", r.OutputBytes,
			int64(renderworker.MinOutputBytes), int64(renderworker.MaxOutputBytes))
	}
	return nil
}

// renderFunc returns the function that renders stacks: in a pool of worker processes, which it
// stores in p.pool, or in this process.
func (p *process) renderFunc() func(context.Context, stacks.Request) (stacks.Result, error) {
	r, program := p.opts.Render, p.opts.RenderProgram
	if r.Workers == 0 || len(program) == 0 {
		return renderworker.InProcess(r.Timeout, r.OutputBytes)
	}
	p.pool = renderworker.New(renderworker.Options{Workers: r.Workers, Timeout: r.Timeout, MemoryBytes: r.MemoryBytes,
		OutputBytes: r.OutputBytes,
		Program:     program[0], Args: program[1:], Log: ctrl.Log.WithName("render")})
	return p.pool.Render
}
