package machine

import (
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
func Lacking() string {
	if runtime.GOOS != "linux" {
		return "it runs Linux only"
	}
	if os.Geteuid() != 0 {
		return "it needs root: namespaces, mounts and a bridge"
	}
	var missing []string
	for _, program := range []string{"containerd", "ctr", "runc", "nft", "ip"} {
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
		return fmt.Sprintf("it needs %s: apt-get install containerd runc containernetworking-plugins nftables iproute2", strings.Join(missing, ", "))
	}
	return ""
}
