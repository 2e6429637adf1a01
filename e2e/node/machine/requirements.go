package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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
	if lacking := lackingCapabilities(); lacking != "" {
		return lacking
	}
	if lacking := lackingControllers(); lacking != "" {
		return lacking
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

// capabilities are those that containerd gives to each container, and those that a node needs
// for mounts and networks; capabilities(7) has the numbers.
var capabilities = map[string]uint{
	"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETPCAP": 8,
	"CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27,
	"CAP_AUDIT_WRITE": 29, "CAP_SETFCAP": 31,
}

// lackingCapabilities names the capabilities that this process does not have; "" if it has all.
func lackingCapabilities() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Sprintf("the capabilities of the process can't be read: %v", err)
	}
	return missingCapabilities(string(status))
}

// missingCapabilities reads /proc/PID/status.
func missingCapabilities(status string) string {
	_, rest, _ := strings.Cut(status, "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return fmt.Sprintf("the capabilities of the process can't be read: %v", err)
	}
	var missing []string
	for name, bit := range capabilities {
		if set&(1<<bit) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	return "a node needs the capabilities " + strings.Join(missing, ", ")
}

// controllers of control groups without which the kubelet does not start.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// lackingControllers names the controllers of control groups that are not there; "" if all are.
func lackingControllers() string {
	var missing []string
	unified, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	for _, name := range controllers {
		if err == nil {
			if !slices.Contains(strings.Fields(string(unified)), name) {
				missing = append(missing, name)
			}
		} else if _, err := os.Stat(filepath.Join(cgroupRoot, name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("a node needs the control group controllers %s in %s", strings.Join(missing, ", "), cgroupRoot)
}

const cgroupRoot = "/sys/fs/cgroup"

// cgroups is the folder of a hierarchy: the only one, or that of memory.
func cgroups() string {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return cgroupRoot
	}
	return filepath.Join(cgroupRoot, "memory")
}
