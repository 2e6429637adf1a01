package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/ksctl/gitops/e2e/cluster"
)

func (n *Node) startKubelet(ctx context.Context, binary string) error {
	port, err := cluster.FreePort()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
# Only kube-proxy adds packet filter rules, because it also removes them.
makeIPTablesUtilChains: false
healthzPort: 0
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
resolvConf: %s
clusterDNS: [%s]
clusterDomain: %s
registerNode: true
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
# Short intervals for a small cluster; the defaults limit the load of a large one.
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
`, port, n.socket(), n.PodLogs(), n.path("resolv.conf"), Address, clusterDomain)
	file := n.path("kubelet.yaml")
	// Names of others than Services do not exist.
	for path, content := range map[string]string{file: config, n.path("resolv.conf"): "nameserver " +
		Address.String() + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	n.kubelet, err = n.runAs("system:node:"+Name, []string{"system:nodes"}, binary, "--config="+file,
		"--root-dir="+n.path("kubelet"),
		"--cert-dir="+n.path("pki"))
	if err != nil {
		return err
	}
	return cluster.Await(ctx, "the node to become Ready", startTimeout, func(ctx context.Context) error {
		return n.h.ControlPlane.NodeReady(ctx, Name)
	}, n.kubelet.Process)
}

// Stop stops all programs and removes everything that they created: containers, mounts, packet
// filter rules and files.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	if n.kubelet != nil {
		_ = n.kubelet.Stop() // before the containers, because the kubelet would restart them
	}
	if n.proxy != nil {
		_ = n.proxy.Stop()
		if out, err := exec.CommandContext(ctx, n.proxyBinary, "--cleanup").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("kube-proxy --cleanup: %w: %s", err, out))
		}
	}
	if n.containerd != nil {
		errs = append(errs, n.deleteTasks(ctx))
		_ = n.containerd.Stop()
	}
	if n.names != nil {
		errs = append(errs, n.names.Close())
	}
	if n.dir != "" {
		errs = append(errs, n.unmount(ctx), n.restore(), os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}
