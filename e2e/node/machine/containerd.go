package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster"
)

// namespace is the containerd namespace of the kubelet's containers.
const namespace = "k8s.io"

// startContainerd starts containerd with separate folders and a separate socket, so that it does
// not interfere with a containerd of the machine.
func (n *Node) startContainerd(ctx context.Context, o Options) error {
	// https://github.com/containerd/containerd/blob/v1.6.20/docs/cri/config.md
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # This machine may be a container without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %q
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, n.path("containerd"), n.path("state"), n.socket(), o.Pause, n.snapshotter(ctx), cniFolder, n.path("cni"),
		n.path("registries"))
	for host, mirror := range o.Mirrors {
		if err := n.Mirror(host, mirror); err != nil {
			return err
		}
	}
	file := n.path("containerd.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	var err error
	if n.containerd, err = n.h.RunProgram("containerd", n.h.ControlPlane.Config(), nil, "--config="+file); err != nil {
		return err
	}
	return cluster.Await(ctx, "containerd to respond", startTimeout, func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	}, n.containerd.Process)
}

// snapshotter returns the snapshotter of containerd: overlayfs if the file system of the node's
// folder permits it, else native, which copies all lower layers for each layer.
func (n *Node) snapshotter(ctx context.Context) string {
	dir := n.path("overlay")
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return "native"
		}
	}
	merged := filepath.Join(dir, "merged")
	if err := run(ctx, "mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%[1]s/lower,"+
		"upperdir=%[1]s/upper,workdir=%[1]s/work", dir), merged); err != nil {
		return "native"
	}
	if err := run(ctx, "umount", merged); err != nil {
		return "native"
	}
	return "overlayfs"
}

// Mirror lets containerd pull the images of a registry, host or host:port, from another one that
// speaks HTTP, from the next pull on.
// https://github.com/containerd/containerd/blob/v1.6.20/docs/hosts.md
func (n *Node) Mirror(host, mirror string) error {
	folder := filepath.Join(n.path("registries"), host)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf("server = %q\n[host.%[1]q]\ncapabilities = [\"pull\", \"resolve\"]\n", "http://"+mirror)
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(config), 0o600)
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *Node) socket() string { return n.path("containerd.sock") }

// ctr runs ctr and returns the whitespace-separated fields of its output.
func (n *Node) ctr(ctx context.Context, args ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ctr",
		append([]string{"--address=" + n.socket(), "--namespace=" + namespace}, args...)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ctr %v: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return strings.Fields(string(out)), nil
}

// deleteTasks ends the containers of the pods, because they keep running after containerd stops.
func (n *Node) deleteTasks(ctx context.Context) error {
	tasks, err := n.ctr(ctx, "tasks", "list", "--quiet")
	if err != nil {
		return err
	}
	var errs []error
	for _, task := range tasks {
		_, err := n.ctr(ctx, "tasks", "delete", "--force", task)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmount unmounts everything below the node's folder, innermost mounts first.
func (n *Node) unmount(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], n.dir+"/") {
			errs = append(errs, run(ctx, "umount", "--lazy", fields[1]))
		}
	}
	return errors.Join(errs...)
}
