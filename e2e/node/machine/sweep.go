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

const dirPrefix = "ksctl-node-"

// lockMachine locks this machine for this process, because the bridge and the packet filter exist
// once per machine. It returns a function that releases the lock.
func lockMachine() (func() error, error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), dirPrefix+"lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking this machine: another run uses it as a node: %w", err),
			file.Close())
	}
	return file.Close, nil
}

// sweep removes the leftovers of killed runs, whose containers keep running.
func sweep(ctx context.Context, h *harness.Harness) error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*", "containerd.toml"))
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
