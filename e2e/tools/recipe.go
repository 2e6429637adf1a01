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

// mainModule is the module that this package belongs to.
const mainModule = "github.com/ksctl/gitops"

// workshop is what all builds of one call have in common.
type workshop struct {
	root      string // folder of this package in the checkout
	cache     string // folder that holds what was built
	goVersion string // of the go command, such as go1.26.8
}

// recipe says how one program is built and where it goes.
type recipe struct {
	tool    Tool
	version string // of its module
	dir     string // absolute folder of its go.mod
	ldflags string
	binary  string // absolute path of the result
}

// openWorkshop finds the checkout, the cache and the go command.
func openWorkshop(ctx context.Context) (workshop, error) {
	root, err := findRoot()
	if err != nil {
		return workshop{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return workshop{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return workshop{}, fmt.Errorf("ask the go command for its version: %w", err)
	}
	return workshop{
		root:      filepath.Join(root, "e2e", "tools"),
		cache:     filepath.Join(cache, "ksctl-gitops", "tools"),
		goVersion: strings.TrimSpace(string(version)),
	}, nil
}

// findRoot returns the folder of the checkout's go.mod, looking upwards from
// the working directory (which is the package's folder in a test). Modules
// inside the checkout are passed by.
func findRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(data) == mainModule {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the checkout: no go.mod of %s in %s or above", mainModule, wd)
		}
	}
}

// Version of a program, as its module's go.mod says.
func Version(name string) (string, error) {
	tool, ok := lookup(name)
	if !ok {
		return "", fmt.Errorf("no tool is called %q; there are %s", name, strings.Join(All(), ", "))
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "e2e", "tools", tool.Dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the module of %s: %w", name, err)
	}
	return requiredVersion(mod, tool.Module)
}

// ModuleDir returns the folder of the module that a program is built from, for
// files that come with it such as definitions. It is downloaded if need be.
func ModuleDir(ctx context.Context, name string) (string, error) {
	tool, ok := lookup(name)
	if !ok {
		return "", fmt.Errorf("no tool is called %q; there are %s", name, strings.Join(All(), ", "))
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	return moduleDir(ctx, filepath.Join(root, "e2e", "tools", tool.Dir), tool.Module)
}

// moduleDir returns the folder of a module that the go.mod in dir requires, and downloads the
// module if need be.
func moduleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, failed := cmd.Output() // the reason of a failure is on standard output
	var found struct{ Dir, Error string }
	if err := errors.Join(failed, json.Unmarshal(out, &found)); err != nil {
		return "", fmt.Errorf("downloading the module %s: %w %s", module, err, found.Error)
	}
	return found.Dir, nil
}

// recipe reads the tool's module and works out version, flags and result. The
// result's folder carries a hash of everything that decides its bytes.
func (w workshop) recipe(t Tool) (recipe, error) {
	dir := filepath.Join(w.root, t.Dir)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return recipe{}, fmt.Errorf("read the module of %s: %w", t.Name, err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return recipe{}, fmt.Errorf("read the checksums of %s: %w", t.Name, err)
	}
	version, err := requiredVersion(mod, t.Module)
	if err != nil {
		return recipe{}, fmt.Errorf("find the version of %s in %s: %w", t.Name, dir, err)
	}
	flags := []string{"-s", "-w"}
	if t.LDFlags != nil {
		flags = append(flags, t.LDFlags(version)...)
	}
	r := recipe{tool: t, version: version, dir: dir, ldflags: strings.Join(flags, " ")}
	r.binary = filepath.Join(w.cache, w.key(r, mod, sum), t.Name)
	return r, nil
}

// key names the folder of a result: readable first, then a short hash.
func (w workshop) key(r recipe, mod, sum []byte) string {
	h := sha256.New()
	for _, part := range []string{string(mod), string(sum), w.goVersion, r.ldflags, r.tool.Package} {
		// The length keeps two neighbouring parts from running into each other.
		_, _ = fmt.Fprintf(h, "%d:", len(part))
		_, _ = io.WriteString(h, part)
	}
	hash := hex.EncodeToString(h.Sum(nil))[:12]
	return strings.Join([]string{r.tool.Name, r.version, runtime.GOOS, runtime.GOARCH, hash}, "-")
}

// requiredVersion returns the version of module that a go.mod file asks for.
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
