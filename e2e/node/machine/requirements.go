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
	"testing"
)

// cniFolder is the folder of the CNI plugins in Debian's package containernetworking-plugins.
const cniFolder = "/usr/lib/cni"

// nodeVariable is the environment variable that enables suites on a node, which create a bridge and
// packet filter rules. With the value "try" they are skipped on a machine that can't be a node.
const (
	nodeVariable = "KSCTL_E2E_NODE"
	tryValue     = "try"
)

// Require skips a test that needs a node, unless one is wanted and this machine can be one.
func Require(t *testing.T) {
	t.Helper()
	wanted := os.Getenv(nodeVariable)
	if wanted == "" {
		t.Skipf("this suite needs %s=1 (make node)", nodeVariable)
	}
	if lacking := MissingRequirement(t.Context()); lacking != "" {
		if wanted == tryValue {
			t.Skipf("this machine can't be a node: %s", lacking)
		}
		t.Fatalf("%s is set, but this machine can't be a node: %s", nodeVariable, lacking)
	}
}

// MissingRequirement returns the reason why this machine can't be a node, and a remedy; "" if it
// can.
func MissingRequirement(ctx context.Context) string {
	if runtime.GOOS != "linux" {
		return "a node needs Linux"
	}
	if os.Geteuid() != 0 {
		return "a node needs root for namespaces, mounts and a bridge"
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
		return fmt.Sprintf("a node needs %s: apt-get install containerd runc containernetworking-plugins nftables "+
			"iproute2 util-linux", strings.Join(missing, ", "))
	}
	if lacking := checkCapabilities(); lacking != "" {
		return lacking
	}
	if lacking := checkControllers(); lacking != "" {
		return lacking
	}
	return deniedOperation(ctx)
}

// probe is the unique name of test objects.
const probe = "ksctle2eprobe"

// deniedOperation returns the first operation that a node needs and root is not allowed here, as in
// an unprivileged container; "" if all are allowed.
func deniedOperation(ctx context.Context) string {
	for _, op := range []struct {
		what string
		do   func() error
	}{
		{"create a bridge", func() error {
			_ = run(ctx, "ip", "link", "delete", probe) // a leftover of an interrupted check
			if err := run(ctx, "ip", "link", "add", probe, "type", "bridge"); err != nil {
				return err
			}
			return run(ctx, "ip", "link", "delete", probe)
		}},
		{"create namespaces and mount in them", func() error {
			return run(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs",
				probe, os.TempDir())
		}},
		{"change the packet filter", func() error {
			if err := run(ctx, "nft", "add", "table", "inet", probe); err != nil {
				return err
			}
			return run(ctx, "nft", "delete", "table", "inet", probe)
		}},
		{"create control groups", func() error {
			dir := filepath.Join(cgroups(), probe)
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				return err
			}
			return os.Remove(dir)
		}},
		{"read the kernel's log", func() error {
			f, err := os.Open("/dev/kmsg") // the kubelet reads OOM kills from it
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
		if err := op.do(); err != nil {
			return fmt.Sprintf("root may not %s here: %v", op.what, err)
		}
	}
	return ""
}

// capabilities are the capabilities that containerd grants to each container, and those that a node
// needs for mounts and networks. The numbers are from capabilities(7).
var capabilities = map[string]uint{
	"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_KILL": 5, "CAP_SETGID": 6,
	"CAP_SETUID": 7, "CAP_SETPCAP": 8,
	"CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21,
	"CAP_MKNOD":       27,
	"CAP_AUDIT_WRITE": 29, "CAP_SETFCAP": 31,
}

// checkCapabilities returns a message with the required capabilities that this process lacks; "" if
// it has all.
func checkCapabilities() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Sprintf("reading the capabilities of the process: %v", err)
	}
	return missingCapabilities(string(status))
}

// missingCapabilities is checkCapabilities for the content of /proc/<pid>/status.
func missingCapabilities(status string) string {
	_, rest, _ := strings.Cut(status, "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return fmt.Sprintf("reading the capabilities of the process: %v", err)
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

// controllers are the control group controllers that the kubelet needs to start.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// checkControllers returns a message with the missing control group controllers; "" if all exist.
func checkControllers() string {
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

// cgroups returns the folder of a control group hierarchy: the unified one, or that of the memory
// controller.
func cgroups() string {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return cgroupRoot
	}
	return filepath.Join(cgroupRoot, "memory")
}
