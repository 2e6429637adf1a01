package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

const (
	// forwarding is the setting that the CNI bridge plugin enables to make the bridge a gateway.
	forwarding = "/proc/sys/net/ipv4/ip_forward"
	// links is the fixed folder of the kubelet's links to container logs.
	links = "/var/log/containers"
	// results is the fixed folder of the CNI library's results.
	results = "/var/lib/cni/results"
)

// restore restores the machine's settings, and removes the node's files outside its folder.
func (n *Node) restore() error {
	var errs []error
	if n.forwarding != nil {
		errs = append(errs, os.WriteFile(forwarding, n.forwarding, 0o600))
	}
	kept, err := filepath.Glob(filepath.Join(results, networkName+"-*"))
	errs = append(errs, err)
	logs, err := filepath.Glob(filepath.Join(links, "*"))
	errs = append(errs, err)
	for _, path := range logs {
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, n.dir+"/") {
			kept = append(kept, path)
		}
	}
	for _, path := range kept {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}
