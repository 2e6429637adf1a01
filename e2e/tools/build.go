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

// heartbeat is how often a long build or wait says that it is still alive.
const heartbeat = 15 * time.Second

// AssetsVariable names the environment variable with the folder of programs
// that somebody else provides, as in controller-runtime's envtest.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Build returns the paths of the named programs, by name: those in the folder of
// [AssetsVariable], then those of the cache. It builds the ones that are missing, which
// takes minutes the first time. Progress goes to progress, one line at a time; nil discards
// it. An unknown name, a provided program of another minor version, a failing build and a
// checkout that can't be found are errors.
//
// It is safe to call from several processes at once: one builds, the others wait. Canceling
// ctx stops a build and leaves nothing half made behind.
func Build(ctx context.Context, progress io.Writer, names ...string) (map[string]string, error) {
	if progress == nil {
		progress = io.Discard
	}
	paths := make(map[string]string, len(names))
	var missing []recipe
	var w workshop
	for _, name := range names {
		tool, ok := lookup(name)
		if !ok {
			return nil, fmt.Errorf("no tool is called %q; there are %s", name, strings.Join(All(), ", "))
		}
		if w.root == "" {
			var err error
			if w, err = openWorkshop(ctx); err != nil {
				return nil, err
			}
		}
		r, err := w.recipe(tool)
		if err != nil {
			return nil, err
		}
		if path := provided(name); path != "" {
			if err := checkVersion(ctx, tool, path, r.version); err != nil {
				return nil, fmt.Errorf("%s of %s: %w", name, AssetsVariable, err)
			}
			paths[name] = path
			continue
		}
		paths[name] = r.binary
		if !executable(r.binary) {
			missing = append(missing, r)
		}
	}
	announce(progress, missing)
	for i, r := range missing {
		p := &reporter{out: progress, what: fmt.Sprintf("%s %s (%d of %d)", r.tool.Name, r.version, i+1, len(missing)), start: time.Now()}
		if err := w.make(ctx, r, p); err != nil {
			return nil, fmt.Errorf("build %s %s: %w", r.tool.Name, r.version, err)
		}
	}
	return paths, nil
}

// announce writes what will be built and about how long that takes.
func announce(progress io.Writer, missing []recipe) {
	if len(missing) == 0 {
		return
	}
	var names []string
	var takes time.Duration
	for _, r := range missing {
		names, takes = append(names, r.tool.Name), takes+r.tool.Takes
	}
	_, _ = fmt.Fprintf(progress, "tools: building %s from source, once: about %s on two processors\n",
		strings.Join(names, ", "), takes.Round(10*time.Second))
}

// Missing returns those of the named programs that [Build] would build.
func Missing(ctx context.Context, names ...string) ([]string, error) {
	w, err := openWorkshop(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range names {
		tool, ok := lookup(name)
		if !ok {
			return nil, fmt.Errorf("no tool is called %q; there are %s", name, strings.Join(All(), ", "))
		}
		r, err := w.recipe(tool)
		if err != nil {
			return nil, err
		}
		if provided(name) == "" && !executable(r.binary) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// provided returns the program's path in the folder of [AssetsVariable], or ""
// when there is no such folder or program.
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

// make builds one program unless another process has done so by the time its
// lock is free.
func (w workshop) make(ctx context.Context, r recipe, p *reporter) error {
	dir := filepath.Dir(r.binary)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the cache folder: %w", err)
	}
	release, err := lock(ctx, filepath.Join(dir, ".lock"), p)
	if err != nil {
		return err
	}
	defer release()
	if executable(r.binary) {
		p.say("made by another process")
		return nil
	}
	p.say("building")
	if err := w.compile(ctx, r, p); err != nil {
		return err
	}
	p.say("built")
	return nil
}

// compile runs the go command and moves the result into place when it is
// whole, so that a killed build leaves no binary that looks usable.
func (w workshop) compile(ctx context.Context, r recipe, p *reporter) error {
	temp := fmt.Sprintf("%s.%d.tmp", r.binary, os.Getpid())
	defer func() { _ = os.Remove(temp) }()

	args := []string{"build", "-C", r.dir, "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", r.ldflags, "-o", temp, r.tool.Package}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = w.environ()
	// An interrupt lets the go command remove its own temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second

	stop := p.beat("still building")
	output, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output))
	}
	if err := os.Rename(temp, r.binary); err != nil {
		return fmt.Errorf("move the binary into place: %w", err)
	}
	return nil
}

// environ is the caller's environment without what would change the result:
// the tools are for this machine, without cgo, from their own go.mod alone.
func (w workshop) environ() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
