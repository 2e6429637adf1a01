// Package wrangler runs wrangler, the client of Cloudflare Workers, for tests. It needs Node.js
// and npm, and no network but that to the API once it is installed.
package wrangler

import (
	"context"
	"crypto/sha256"
	_ "embed" // of the pinned packages
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

var (
	//go:embed package.json
	packages []byte
	//go:embed package-lock.json
	lockfile []byte
)

// MissingRequirement returns why wrangler cannot run here; "" if it can.
func MissingRequirement() string {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not on PATH: apt-get install nodejs npm"
		}
	}
	return ""
}

// Install installs wrangler in the cache folder of the user, if it is not there, and returns the
// folder. Another version has another folder.
func Install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	sum := sha256.Sum256(append(packages, lockfile...))
	dir := filepath.Join(cache, "ksctl-gitops", "npm", "wrangler-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return "", err
	}
	// A process that installs it at the same time has a folder of its own.
	partial, err := os.MkdirTemp(filepath.Dir(dir), "partial-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(partial) }()
	for name, content := range map[string][]byte{"package.json": packages, "package-lock.json": lockfile} {
		if err := os.WriteFile(filepath.Join(partial, name), content, 0o600); err != nil {
			return "", err
		}
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = partial
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(partial, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr != nil {
			return "", errors.Join(err, statErr)
		}
	}
	return dir, nil
}

// Client runs wrangler.
type Client struct {
	// Dir is the folder that Install returned.
	Dir string
	// Home is an empty folder, which wrangler writes its logs to.
	Home string
	// Server is the URL of the API, such as http://127.0.0.1:8787.
	Server string
	// Account and Token are those of the user.
	Account, Token string
}

// Command returns a run of wrangler in the folder of a project.
func (c *Client) Command(ctx context.Context, project string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node",
		append([]string{filepath.Join(c.Dir, "node_modules", "wrangler", "bin", "wrangler.js")}, args...)...)
	cmd.Dir = project
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Home, "CI=true", "NO_COLOR=1",
		"WRANGLER_SEND_METRICS=false", "CLOUDFLARE_API_BASE_URL=" + c.Server + "/client/v4",
		"CLOUDFLARE_API_TOKEN=" + c.Token, "CLOUDFLARE_ACCOUNT_ID=" + c.Account}
	return cmd
}
