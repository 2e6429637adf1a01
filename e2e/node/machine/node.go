package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// Name is the name of the node. The API server resolves it to reach the kubelet on loopback.
const Name = "localhost"

// startTimeout bounds each step of a start.
const startTimeout = 2 * time.Minute

// Node is a node that runs real pods. Stop removes all traces of it.
type Node struct {
	h   *harness.Harness
	dir string

	containerd, kubelet, proxy *harness.Process
	proxyBinary                string
	names                      *nameServer
	// forwarding is the machine's original setting of IP forwarding.
	forwarding []byte
}

// ClusterOptions returns options for a control plane that a node can join.
func ClusterOptions() cluster.Options {
	return cluster.Options{Nodes: -1, Addresses: []net.IP{Address},
		APIServerFlags: []string{"--bind-address=0.0.0.0", "--advertise-address=" + Address.String(),
			"--endpoint-reconciler-type=lease"}}
}

// Options are options of a node.
type Options struct {
	// Pause is the reference of the sandbox image of pods, which must exist in its registry.
	Pause string
	// Mirrors are the addresses of registries that speak HTTP, by the host in whose place they
	// serve images.
	Mirrors map[string]string
}

// Start starts the node and waits until it accepts pods.
func Start(ctx context.Context, h *harness.Harness, o Options) (n *Node, err error) {
	n = &Node{h: h}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
			n = nil
		}
	}()
	paths, err := tools.Build(ctx, os.Stderr, tools.Kubelet, tools.KubeProxy)
	if err != nil {
		return n, err
	}
	if err := sweep(ctx, h); err != nil {
		return n, fmt.Errorf("removing leftovers of earlier runs: %w", err)
	}
	if n.forwarding, err = os.ReadFile(forwarding); err != nil {
		return n, err
	}
	n.proxyBinary = paths[tools.KubeProxy]
	if n.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return n, err
	}
	if err := writeNetworkConfig(n.dir); err != nil {
		return n, err
	}
	if err := n.startContainerd(ctx, o); err != nil {
		return n, err
	}
	if n.names, err = startNameServer(h.ControlPlane.Client()); err != nil {
		return n, err
	}
	if err := n.startKubelet(ctx, paths[tools.Kubelet]); err != nil {
		return n, err
	}
	return n, n.startProxy(ctx)
}

func (n *Node) startProxy(ctx context.Context) error {
	health, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	// Zero values keep the machine's connection tracking settings.
	n.proxy, err = n.runAs("system:kube-proxy", nil, n.proxyBinary, "--proxy-mode=nftables", "--cluster-cidr="+subnet,
		"--healthz-bind-address="+health, "--metrics-bind-address="+metrics,
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s")
	if err != nil {
		return err
	}
	n.proxy.HealthURL = "http://" + health + "/healthz"
	return n.proxy.WaitHealthy(ctx)
}

// runAs starts a program that authenticates as a user.
func (n *Node) runAs(user string, groups []string, binary string, args ...string) (*harness.Process, error) {
	config, err := n.h.ControlPlane.ConfigForUser(user, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := n.h.ControlPlane.WriteKubeconfig(filepath.Base(binary), config)
	if err != nil {
		return nil, err
	}
	return n.h.RunProgram(binary, config, nil,
		append([]string{"--kubeconfig=" + kubeconfig, "--hostname-override=" + Name}, args...)...)
}

// LogTails returns the last log lines of the node's programs.
func (n *Node) LogTails() string {
	return fmt.Sprintf("kubelet:\n%s\nkube-proxy:\n%s\ncontainerd:\n%s", n.kubelet.Tail(), n.proxy.Tail(),
		n.containerd.Tail())
}

// PodLogs returns the folder of the pods' logs.
func (n *Node) PodLogs() string { return n.path("logs") }
