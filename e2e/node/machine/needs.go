package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// cniFolder is where Debian's containernetworking-plugins has them.
const cniFolder = "/usr/lib/cni"

// Lacking says why no node can be made here, and what to do; "" if it can.
func Lacking(ctx context.Context) string {
	if runtime.GOOS != "linux" {
		return "it runs Linux only"
	}
	if os.Geteuid() != 0 {
		return "it needs root: namespaces, mounts and a bridge"
	}
	var missing []string
	for _, program := range []string{"containerd", "ctr", "runc", "nft", "ip", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(cniFolder, plugin)); err != nil {
			missing = append(missing, "the CNI plugin "+plugin)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("it needs %s: apt-get install containerd runc containernetworking-plugins nftables iproute2 util-linux", strings.Join(missing, ", "))
	}
	return refused(ctx)
}

// probe is a name that nothing else here has.
const probe = "ksctle2eprobe"

// refused says what root is not allowed to do here, as in a container without
// privileges; "" if it is allowed all that a node needs.
func refused(ctx context.Context) string {
	for _, try := range []struct {
		what string
		do   func() error
	}{
		{"make a bridge", func() error {
			_ = run(ctx, "ip", "link", "delete", probe) // what an earlier try has left
			if err := run(ctx, "ip", "link", "add", probe, "type", "bridge"); err != nil {
				return err
			}
			return run(ctx, "ip", "link", "delete", probe)
		}},
		{"make namespaces and mount in them", func() error {
			return run(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", probe, os.TempDir())
		}},
		{"change the packet filter", func() error {
			if err := run(ctx, "nft", "add", "table", "inet", probe); err != nil {
				return err
			}
			return run(ctx, "nft", "delete", "table", "inet", probe)
		}},
		{"make control groups", func() error {
			dir := filepath.Join(cgroups(), probe)
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				return err
			}
			return os.Remove(dir)
		}},
		{"read the kernel's log", func() error {
			f, err := os.Open("/dev/kmsg") // the kubelet looks there for processes that ran out of memory
			if err != nil {
				return err
			}
			return f.Close()
		}},
		{"forward packets", func() error {
			was, err := os.ReadFile(forwarding)
			if err != nil {
				return err
			}
			return os.WriteFile(forwarding, was, 0o600)
		}},
	} {
		if err := try.do(); err != nil {
			return fmt.Sprintf("root may not %s here: %v", try.what, err)
		}
	}
	return ""
}

// cgroups is the folder of a hierarchy: the only one, or that of memory.
func cgroups() string {
	const all = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(all, "cgroup.controllers")); err == nil {
		return all
	}
	return filepath.Join(all, "memory")
}
