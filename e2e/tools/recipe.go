package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// mainModule is the path of the module of this package.
const mainModule = "github.com/ksctl/gitops"

// builder has the folders and the Go version that all builds of one call share.
type builder struct {
	root      string // folder of this package in the checkout
	cache     string // folder of built programs
	goVersion string // of the go command, such as go1.26.8
}

// recipe describes how to build one program, and the path of the result.
type recipe struct {
	tool    Tool
	version string // version of its module
	dir     string // absolute path of the folder of its go.mod
	ldflags string
	binary  string // absolute path of the result
}

// newBuilder locates the checkout and the cache, and reads the Go version.
func newBuilder(ctx context.Context) (builder, error) {
	checkout, err := Checkout()
	if err != nil {
		return builder{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return builder{}, fmt.Errorf("finding the user's cache folder: %w", err)
	}
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return builder{}, fmt.Errorf("running go env GOVERSION: %w", err)
	}
	return builder{
		root:      filepath.Join(checkout, "e2e", "tools"),
		cache:     filepath.Join(cache, "ksctl-gitops", "tools"),
		goVersion: strings.TrimSpace(string(version)),
	}, nil
}

// Checkout returns the folder of this repository. It searches the working directory (the package's
// folder in a test) and its parents for the go.mod of this module, and skips nested modules.
func Checkout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(data) == mainModule {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the checkout: no go.mod of %s in %s or above", mainModule, wd)
		}
	}
}

// Version returns the version of a program that its go.mod requires.
func Version(name string) (string, error) {
	tool, dir, err := moduleOf(name)
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the module of %s: %w", name, err)
	}
	return requiredVersion(mod, tool.Module)
}

// ModuleDir returns the folder of the module that a program is built from, for files of the module
// such as CRDs. It downloads the module if necessary.
func ModuleDir(ctx context.Context, name string) (string, error) {
	tool, dir, err := moduleOf(name)
	if err != nil {
		return "", err
	}
	return moduleDir(ctx, dir, tool.Module)
}

// moduleOf returns a tool and the folder of its go.mod.
func moduleOf(name string) (tool Tool, dir string, err error) {
	if tool, err = lookup(name); err != nil {
		return tool, "", err
	}
	checkout, err := Checkout()
	return tool, filepath.Join(checkout, "e2e", "tools", tool.Dir), err
}

// moduleDir returns the folder of a module that the go.mod in dir requires. It downloads the module
// if necessary.
func moduleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, failed := cmd.Output() // the go command writes the reason of a failure to standard output
	var found struct{ Dir, Error string }
	if err := errors.Join(failed, json.Unmarshal(out, &found)); err != nil {
		return "", fmt.Errorf("downloading the module %s: %w %s", module, err, found.Error)
	}
	return found.Dir, nil
}

// recipe reads the tool's module and computes version, linker flags and result path. The name of
// the result's folder has a hash of all inputs of the build.
func (w builder) recipe(t Tool) (recipe, error) {
	dir := filepath.Join(w.root, t.Dir)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return recipe{}, fmt.Errorf("reading the module of %s: %w", t.Name, err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return recipe{}, fmt.Errorf("reading the checksums of %s: %w", t.Name, err)
	}
	version, err := requiredVersion(mod, t.Module)
	if err != nil {
		return recipe{}, fmt.Errorf("finding the version of %s in %s: %w", t.Name, dir, err)
	}
	flags := []string{"-s", "-w"}
	if t.LDFlags != nil {
		flags = append(flags, t.LDFlags(version)...)
	}
	r := recipe{tool: t, version: version, dir: dir, ldflags: strings.Join(flags, " ")}
	r.binary = filepath.Join(w.cache, w.key(r, mod, sum), t.Name)
	return r, nil
}

// key returns the name of a result's folder: readable parts, then a short hash.
func (w builder) key(r recipe, mod, sum []byte) string {
	h := sha256.New()
	for _, part := range []string{string(mod), string(sum), w.goVersion, r.ldflags, r.tool.Package} {
		// The length prefix makes the boundaries of the parts significant.
		_, _ = fmt.Fprintf(h, "%d:", len(part))
		_, _ = io.WriteString(h, part)
	}
	hash := hex.EncodeToString(h.Sum(nil))[:12]
	return strings.Join([]string{r.tool.Name, r.version, runtime.GOOS, runtime.GOARCH, hash}, "-")
}

// requiredVersion returns the version of a module that a go.mod file requires.
func requiredVersion(gomod []byte, module string) (string, error) {
	file, err := modfile.Parse("go.mod", gomod, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}
