// Package programs builds the programs in cmd/ for tests that run them as child processes.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ksctl/gitops/internal/testrun/layout"
)

const module = "github.com/ksctl/gitops"

// Names of the programs.
const (
	Controller = "controller"
	SOPSWorker = "sops-worker"
	Agent      = "agent"
	Kubectl    = "kubectl-ksctl"
)

// Build returns the path of a program: the one that make test has built for all tests, or one that
// Build builds into folder. The working directory must be inside the module.
func Build(ctx context.Context, folder, name string) (string, error) {
	if built := os.Getenv(layout.ProgramsVariable); built != "" {
		return filepath.Join(built, name), nil
	}
	// The build outlives a canceled test, because other tests use its result.
	return compileOne(context.WithoutCancel(ctx), filepath.Join(folder, name), name)
}

// BuildAll builds every program into folder, for [layout.ProgramsVariable].
func BuildAll(ctx context.Context, folder string) error {
	if err := compile(ctx, folder+string(filepath.Separator), module+"/cmd/..."); err != nil {
		return fmt.Errorf("building the programs of the project: %w", err)
	}
	return nil
}

// BuildRelease builds a program into folder with the flags of a release, which make it smaller.
func BuildRelease(ctx context.Context, folder, name string) (string, error) {
	return compileOne(ctx, filepath.Join(folder, "shipped-"+name), name, "-trimpath", "-ldflags=-s -w")
}

func compileOne(ctx context.Context, path, name string, flags ...string) (string, error) {
	if err := compile(ctx, path, module+"/cmd/"+name, flags...); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return path, nil
}

// compile builds without cgo, as a release does, so that memory limits apply to the Go runtime
// only.
func compile(ctx context.Context, output, packages string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-o", output}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, packages)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
