package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ksctl/gitops/e2e/harness"
)

const folders = "ksctl-node-"

// alone holds the machine for this process: bridge and packet filter are there once.
// What it returns gives it back.
func alone() (func() error, error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), folders+"lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another run has made a node of this machine: %w", err), file.Close())
	}
	return file.Close, nil
}

// sweep takes away what a run has left that was killed: its containers go on without it.
func sweep(ctx context.Context, h *harness.Harness) error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folders+"*", "containerd.toml"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range left {
		n := &Node{h: h, dir: filepath.Dir(path)}
		if err := n.startContainerd(ctx, "none"); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, n.Stop(ctx))
	}
	return errors.Join(errs...)
}
