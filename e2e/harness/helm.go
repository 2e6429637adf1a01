package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/ksctl/gitops/e2e/tools"
)

// Helm runs the helm command in a namespace, as the administrator of the cluster, and returns its
// standard output. Errors contain its standard error.
func (h *Harness) Helm(ctx context.Context, ns string, args ...string) (string, error) {
	programs, err := tools.Build(ctx, os.Stderr, tools.Helm)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, programs[tools.Helm],
		append([]string{"--kubeconfig", h.ControlPlane.Kubeconfig(), "--namespace", ns}, args...)...)
	cmd.Env = []string{"HOME=" + h.dir}
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w", strings.Join(args, " "), err)
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
	}
	return string(out), err
}
