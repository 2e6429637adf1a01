// Package argo runs the two programs of Argo CD that sync, the repo server and the
// application controller, as processes of a harness.
package argo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/alicebob/miniredis/v2"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// Programs starts them. They act as [Account] of a namespace, and know this cluster as
// that which they run in.
type Programs struct {
	// Redis of all of them, in this process.
	Redis *miniredis.Miniredis
	// Env adds to their environment.
	Env []string

	harness *harness.Harness
	binary  string
	dir     string
}

// New builds the programs, which takes minutes the first time and is told to progress,
// and starts their redis: see [Programs.Close].
func New(ctx context.Context, h *harness.Harness, progress io.Writer) (*Programs, error) {
	paths, err := tools.Build(ctx, progress, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	// The path of a socket in it has to be short.
	dir, err := os.MkdirTemp("", "argocd-")
	if err != nil {
		return nil, err
	}
	p := &Programs{Redis: miniredis.NewMiniRedis(), harness: h, binary: paths[tools.ArgoCD], dir: dir}
	if err := p.Redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, errors.Join(fmt.Errorf("start a redis for Argo CD: %w", err), p.Close())
	}
	if p.Env, err = environment(dir, module); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close ends the redis, and removes the programs' folder. They are to be stopped before.
func (p *Programs) Close() error {
	p.Redis.Close()
	return os.RemoveAll(p.dir)
}

// environment has paths in a folder in place of those that an image has.
func environment(dir, module string) ([]string, error) {
	for _, folder := range []string{"bin", "tls", "ssh", "gpg", "gnupg", "plugins"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	// It comes with the module, where nothing can be run.
	const wrapper = "git-verify-wrapper.sh"
	script, err := os.ReadFile(filepath.Join(module, "hack", wrapper))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", wrapper), script, 0o755); err != nil {
		return nil, err
	}
	return []string{
		"PATH=" + filepath.Join(dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOSTNAME=" + Account + "-0",
		"ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_GPG_ENABLED=false",
		"ARGOCD_TLS_DATA_PATH=" + filepath.Join(dir, "tls"),
		"ARGOCD_SSH_DATA_PATH=" + filepath.Join(dir, "ssh"),
		"ARGOCD_GPG_DATA_PATH=" + filepath.Join(dir, "gpg"),
		"ARGOCD_GNUPGHOME=" + filepath.Join(dir, "gnupg"),
		"ARGOCD_PLUGINSOCKFILEPATH=" + filepath.Join(dir, "plugins"),
		"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(dir, "ask.sock"),
	}, nil
}

// StartRepoServer runs the repo server, and returns the address that controllers find it
// at. It does not wait until it is of use: see [harness.Process.Healthy].
func (p *Programs) StartRepoServer(ctx context.Context, namespace string, flags ...string) (*harness.Process, string, error) {
	address, err := cluster.FreeAddress()
	if err != nil {
		return nil, "", err
	}
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	_, metricsPort, err := net.SplitHostPort(metrics)
	if err != nil {
		return nil, "", err
	}
	// An empty path of the CA is that of none: with the default one it does not start.
	process, err := p.run(ctx, "argocd-repo-server", namespace, metrics, slices.Concat([]string{"--address", host, "--port", port,
		"--metrics-address", host, "--metrics-port", metricsPort, "--disable-tls", "--client-ca-path="}, flags)...)
	return process, address, err
}

// StartController runs the application controller for the Applications of a namespace,
// with the settings there. It does not wait until it is of use, as StartRepoServer.
func (p *Programs) StartController(ctx context.Context, namespace, repoServer string, flags ...string) (*harness.Process, error) {
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(metrics)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, "argocd-application-controller", namespace, metrics, slices.Concat([]string{"--namespace", namespace, "--metrics-port", port,
		"--repo-server", repoServer, "--repo-server-plaintext"}, flags)...)
}

// run runs one of the programs, which tells of its health beside its metrics.
func (p *Programs) run(ctx context.Context, name, namespace, metrics string, flags ...string) (*harness.Process, error) {
	config, err := p.harness.Plane.ConfigFor(ctx, namespace, Account)
	if err != nil {
		return nil, err
	}
	shared := []string{"--redis", p.Redis.Addr(), "--redis-compress", "none", "--loglevel", "warn"}
	process, err := p.harness.RunProgram(p.binary, config, append(slices.Clone(p.Env), "ARGOCD_BINARY_NAME="+name), append(shared, flags...)...)
	if err != nil {
		return nil, err
	}
	process.HealthyAt("http://" + metrics + "/healthz")
	return process, nil
}
