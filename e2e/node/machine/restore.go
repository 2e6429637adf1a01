package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

const (
	// forwarding is switched on by the plugin that makes the bridge a gateway.
	forwarding = "/proc/sys/net/ipv4/ip_forward"
	// links to logs of containers, where the kubelet always puts them.
	links = "/var/log/containers"
	// results of CNI, which the library always keeps there.
	results = "/var/lib/cni/results"
)

// remember notes what the machine was set to.
func (n *Node) remember() (err error) {
	n.forwarding, err = os.ReadFile(forwarding)
	return err
}

// restore sets the machine to what it was, and takes away what stands outside the
// node's folder.
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
