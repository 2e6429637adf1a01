package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const dirPrefix = "ksctl-node-"

// lockTimeout bounds the wait for another suite.
const lockTimeout = 20 * time.Minute

// lockMachine locks this machine for this process, because the bridge and the packet filter exist
// once per machine. It waits for another suite that uses the machine, and returns a function that
// releases the lock.
func lockMachine(ctx context.Context) (func() error, error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), dirPrefix+"lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = cluster.Await(ctx, "the lock of this machine, which another suite uses as a node", lockTimeout,
		func(context.Context) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err != nil {
		return nil, errors.Join(err, file.Close())
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
		if err := n.startContainerd(ctx, Options{Pause: "none"}); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, n.Stop(ctx))
	}
	return errors.Join(errs...)
}
