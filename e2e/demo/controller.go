package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

// buildController compiles the controller of the checkout, or links the binary that make test has
// compiled. The caller removes temp, the folder for temporary files.
func buildController(ctx context.Context, root, temp, binary string) error {
	if built := os.Getenv(layout.ProgramsVariable); built != "" {
		return os.Symlink(filepath.Join(built, "controller"), binary)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary,
		"./cmd/controller")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), tempVariable+"="+temp)
	// A separate process group, so that compilers and linkers are killed with the go command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if output, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("go build ./cmd/controller: %w\n%s", err, output))
	}
	return nil
}

// runController starts the controller and waits until it is ready. It cancels the run when the
// process ends.
func (d *demo) runController(ctx context.Context, binary string, cancel context.CancelCauseFunc) (string, error) {
	kubeconfig, err := d.cluster.KubeconfigFor(ctx, systemNamespace, systemAccount)
	if err != nil {
		return "", err
	}
	storage, err := cluster.FreeAddress()
	if err != nil {
		return "", err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return "", err
	}
	dir := d.cluster.Dir()
	d.controller, err = d.cluster.Launch("controller", binary, dir, []string{"--runtime-namespace=" + systemNamespace,
		"--storage-path=" + filepath.Join(dir, "storage"), "--storage-addr=" + storage, "--metrics-addr=0",
		"--health-addr=" + health,
		"--default-service-account=default", "--log-encoding=console"}, "KUBECONFIG="+kubeconfig)
	if err != nil {
		return "", err
	}
	go func() {
		<-d.controller.Done()
		cancel(fmt.Errorf("the %w", d.controller.Failure("ended")))
	}()
	err = cluster.Await(ctx, "the controller to become ready", actTimeout, func(ctx context.Context) error {
		_, err := cluster.HTTPGet(ctx, "http://"+health+"/readyz")
		return err
	}, d.controller)
	return fmt.Sprintf("process %d as %s/%s", d.controller.Pid, systemNamespace, systemAccount), err
}

// stopController stops the controller. It returns nil if the controller had ended before, because
// that error is already reported.
func (d *demo) stopController() error {
	select {
	case <-d.controller.Done():
		return nil
	default:
	}
	if err := d.controller.Stop(); err != nil {
		return fmt.Errorf("the controller ended with an error: %w; its log ends with:\n%s", err, d.controller.Tail())
	}
	return nil
}
