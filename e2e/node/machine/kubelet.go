package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/ksctl/gitops/e2e/cluster"
)

func (n *Node) startKubelet(ctx context.Context, binary string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
# The machine's packet filter is kube-proxy's alone, which takes its rules away.
makeIPTablesUtilChains: false
healthzPort: 0
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
resolvConf: %s
registerNode: true
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
# As soon as the pods are there; the defaults spare a cluster of many.
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
`, port, n.socket(), n.Logs(), n.path("resolv.conf"))
	file := n.path("kubelet.yaml")
	for path, content := range map[string]string{file: config, n.path("resolv.conf"): "nameserver " + Address.String() + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	user, err := n.h.Plane.ConfigForUser("system:node:"+Name, "system:nodes")
	if err != nil {
		return err
	}
	kubeconfig, err := n.h.Plane.WriteKubeconfig("kubelet", user)
	if err != nil {
		return err
	}
	n.kubelet, err = n.h.RunProgram(binary, user, nil, "--config="+file, "--kubeconfig="+kubeconfig, "--root-dir="+n.path("kubelet"),
		"--cert-dir="+n.path("pki"), "--hostname-override="+Name)
	if err != nil {
		return err
	}
	return await(ctx, "the node is Ready", n.ready, n.kubelet)
}

func freePort() (int, error) {
	address, err := cluster.FreeAddress()
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// Stop ends everything, and takes away what it has made: containers, mounts, rules of
// the packet filter, files.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	if n.kubelet != nil {
		_ = n.kubelet.Stop() // before containers, which it would start again
	}
	if n.proxy != nil {
		_ = n.proxy.Stop()
		if out, err := exec.CommandContext(ctx, n.proxyBinary, "--cleanup").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("kube-proxy --cleanup: %w: %s", err, out))
		}
	}
	if n.containerd != nil {
		errs = append(errs, n.clear(ctx))
		_ = n.containerd.Stop()
	}
	if n.dir != "" {
		errs = append(errs, n.unmount(ctx), n.restore(), os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}
