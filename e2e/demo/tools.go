package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/tools"
)

const (
	toolNames = "etcd, Kubernetes, kwok"
	// tempVariable is the environment variable with the folder for temporary files.
	tempVariable = "TMPDIR"
)

func (d *demo) buildTools(ctx context.Context) (string, error) {
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("running go env GOMOD: %w", err)
	}
	d.root = filepath.Dir(string(gomod))
	if _, err := os.Stat(filepath.Join(d.root, "e2e", "demo")); err != nil {
		return "", fmt.Errorf("the demo must run inside the checkout: %w", err)
	}
	// Only the builds below inherit the variable; "" is like unset.
	before := os.Getenv(tempVariable)
	if err := os.Setenv(tempVariable, d.temp); err != nil {
		return "", err
	}
	err = d.obtainTools(ctx)
	return toolNames, errors.Join(err, os.Setenv(tempVariable, before))
}

// obtainTools downloads release binaries of etcd and the API server, because building them takes
// most of the time of a first run, and builds the other programs.
func (d *demo) obtainTools(ctx context.Context) error {
	missing, err := tools.Missing(ctx, tools.Etcd, tools.APIServer)
	if err != nil {
		return err
	}
	if missing && os.Getenv(tools.AssetsVariable) == "" {
		folder, err := tools.Download(ctx, d.screen)
		switch {
		case errors.Is(err, tools.ErrUnavailable):
			d.line("%s", d.dim(err.Error()+"; building them from source"))
		case err != nil:
			return err
		default:
			// The cluster prefers programs in this folder.
			if err := os.Setenv(tools.AssetsVariable, folder); err != nil {
				return err
			}
		}
	}
	_, err = tools.Build(ctx, d.screen, clusterOptions().Tools()...)
	return err
}

// clusterOptions returns the options of a complete control plane with a fake node.
func clusterOptions() cluster.Options { return cluster.Options{Audit: true, Progress: io.Discard} }
