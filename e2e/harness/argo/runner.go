// Package argo runs the repo server and the application controller of Argo CD as processes of a
// harness.
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
	"strconv"

	"github.com/alicebob/miniredis/v2"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// Runner starts the programs of Argo CD. They authenticate as [ServiceAccount] of a namespace, and
// treat the harness' cluster as the in-cluster destination.
type Runner struct {
	// Redis is the in-process Redis that all programs use.
	Redis *miniredis.Miniredis
	// Env is added to the environment of the programs.
	Env []string

	harness *harness.Harness
	binary  string
	dir     string
}

// New builds the programs and starts their Redis. The first build takes minutes and is reported to
// progress. The caller calls [Runner.Close].
func New(ctx context.Context, h *harness.Harness, progress io.Writer) (*Runner, error) {
	paths, err := tools.Build(ctx, progress, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	// Not below the harness' folder, because the folder contains a socket and socket paths are
	// limited to about 100 bytes.
	dir, err := os.MkdirTemp("", "argocd-")
	if err != nil {
		return nil, err
	}
	p := &Runner{Redis: miniredis.NewMiniRedis(), harness: h, binary: paths[tools.ArgoCD], dir: dir}
	if err := p.Redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, errors.Join(fmt.Errorf("starting Redis for Argo CD: %w", err), p.Close())
	}
	if p.Env, err = environment(dir, module); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close stops Redis and removes the programs' folder. The caller stops the programs first.
func (p *Runner) Close() error {
	p.Redis.Close()
	return os.RemoveAll(p.dir)
}

// environment returns environment variables that replace the paths of the container image by paths
// below dir.
func environment(dir, module string) ([]string, error) {
	for _, folder := range []string{"bin", "tls", "ssh", "gpg", "gnupg", "plugins"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	// The script is part of the module, but the module cache has no executable files.
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
		"HOSTNAME=" + ServiceAccount + "-0",
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

// StartRepoServer starts the repo server and returns its address for StartController. It does not
// wait until the server is ready: see [harness.Process.WaitHealthy].
func (p *Runner) StartRepoServer(ctx context.Context, namespace string,
	flags ...string) (*harness.Process, string, error) {
	port, err := cluster.FreePort()
	if err != nil {
		return nil, "", err
	}
	// An empty CA path disables client authentication; with the default path the server does not
	// start.
	process, err := p.run(ctx, "argocd-repo-server", namespace, slices.Concat([]string{"--address", loopback, "--port",
		strconv.Itoa(port),
		"--metrics-address", loopback, "--disable-tls", "--client-ca-path="}, flags)...)
	return process, net.JoinHostPort(loopback, strconv.Itoa(port)), err
}

// StartController starts the application controller for the Applications of a namespace, with the
// Argo CD settings in that namespace. Like StartRepoServer, it does not wait until the controller
// is ready.
func (p *Runner) StartController(ctx context.Context, namespace, repoServer string,
	flags ...string) (*harness.Process, error) {
	return p.run(ctx, "argocd-application-controller", namespace, slices.Concat([]string{"--namespace", namespace,
		"--repo-server", repoServer, "--repo-server-plaintext"}, flags)...)
}

const loopback = "127.0.0.1"

// run starts one of the programs. Each serves /healthz at its metrics port.
func (p *Runner) run(ctx context.Context, name, namespace string, flags ...string) (*harness.Process, error) {
	metrics, err := cluster.FreePort()
	if err != nil {
		return nil, err
	}
	config, err := p.harness.ControlPlane.ConfigFor(ctx, namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	shared := []string{"--redis", p.Redis.Addr(), "--redis-compress", "none", "--loglevel", "warn", "--metrics-port",
		strconv.Itoa(metrics)}
	process, err := p.harness.RunProgram(p.binary, config, append(slices.Clone(p.Env), "ARGOCD_BINARY_NAME="+name),
		append(shared, flags...)...)
	if err != nil {
		return nil, err
	}
	process.HealthURL = fmt.Sprintf("http://%s:%d/healthz", loopback, metrics)
	return process, nil
}
