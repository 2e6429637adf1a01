package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// heartbeat is the interval of progress lines during a long build or wait.
const heartbeat = 15 * time.Second

// AssetsVariable is the environment variable with the folder of user-provided programs, as in
// controller-runtime's envtest.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Build returns the paths of the named programs, by name. It prefers programs in the folder of
// [AssetsVariable], then those in the cache, and builds the missing ones, which takes minutes the
// first time. It writes one line per step to progress; nil discards the lines. It returns an error
// for an unknown name, a provided program of another minor version, a failed build, or a missing
// checkout.
//
// Several processes may call Build concurrently: one builds, the others wait. Canceling ctx stops a
// build and leaves no partial result.
func Build(ctx context.Context, progress io.Writer, names ...string) (map[string]string, error) {
	if progress == nil {
		progress = io.Discard
	}
	w, paths, missing, err := locate(ctx, names)
	if err != nil {
		return nil, err
	}
	announce(progress, missing)
	for i, r := range missing {
		p := &reporter{out: progress,
			subject: fmt.Sprintf("%s %s (%d of %d)", r.tool.Name, r.version, i+1, len(missing)), start: time.Now()}
		if err := w.build(ctx, r, p); err != nil {
			return nil, fmt.Errorf("building %s %s: %w", r.tool.Name, r.version, err)
		}
	}
	return paths, nil
}

// locate returns the paths of programs, and the recipes of those that are missing there.
func locate(ctx context.Context, names []string) (w builder, paths map[string]string, missing []recipe, err error) {
	if w, err = newBuilder(ctx); err != nil {
		return w, nil, nil, err
	}
	paths = make(map[string]string, len(names))
	for _, name := range names {
		tool, err := lookup(name)
		if err != nil {
			return w, nil, nil, err
		}
		r, err := w.recipe(tool)
		if err != nil {
			return w, nil, nil, err
		}
		if path := provided(name); path != "" {
			if err := checkVersion(ctx, tool, path, r.version); err != nil {
				return w, nil, nil, fmt.Errorf("checking %s in %s: %w", name, AssetsVariable, err)
			}
			paths[name] = path
			continue
		}
		paths[name] = r.binary
		if !executable(r.binary) {
			missing = append(missing, r)
		}
	}
	return w, paths, missing, nil
}

// announce writes the names of the programs to build and the estimated time.
func announce(progress io.Writer, missing []recipe) {
	if len(missing) == 0 {
		return
	}
	var names []string
	var total time.Duration
	for _, r := range missing {
		names, total = append(names, r.tool.Name), total+r.tool.BuildTime
	}
	_, _ = fmt.Fprintf(progress, "tools: building %s from source, once: about %s on two processors\n",
		strings.Join(names, ", "), total.Round(10*time.Second))
}

// Missing returns true if [Build] would build one of the named programs.
func Missing(ctx context.Context, names ...string) (bool, error) {
	_, _, missing, err := locate(ctx, names)
	return len(missing) > 0, err
}

// provided returns the program's path in the folder of [AssetsVariable], or "" if the folder or the
// program does not exist.
func provided(name string) string {
	dir := os.Getenv(AssetsVariable)
	if dir == "" {
		return ""
	}
	if path := filepath.Join(dir, name); executable(path) {
		return path
	}
	return ""
}

// build builds one program, unless another process has built it while build waited for the lock.
func (w builder) build(ctx context.Context, r recipe, p *reporter) error {
	dir := filepath.Dir(r.binary)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	release, err := lock(ctx, filepath.Join(dir, ".lock"), p)
	if err != nil {
		return err
	}
	defer release()
	if executable(r.binary) {
		p.report("built by another process")
		return nil
	}
	p.report("building")
	if err := w.compile(ctx, r, p); err != nil {
		return err
	}
	p.report("built")
	return nil
}

// compile runs the go command and renames the complete result, so that a killed build leaves no
// partial binary under the final name.
func (w builder) compile(ctx context.Context, r recipe, p *reporter) error {
	temp := fmt.Sprintf("%s.%d.tmp", r.binary, os.Getpid())
	defer func() { _ = os.Remove(temp) }()

	args := []string{"build", "-C", r.dir, "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags",
		r.ldflags, "-o", temp, r.tool.Package}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = w.environ()
	// On an interrupt the go command removes its temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second

	stop := p.reportPeriodically("still building")
	output, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output))
	}
	if err := os.Rename(temp, r.binary); err != nil {
		return fmt.Errorf("moving the binary into place: %w", err)
	}
	return nil
}

// environ returns the caller's environment with the Go settings that decide the result: the tools
// are built for this machine, without cgo, from their own go.mod only.
func (w builder) environ() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
