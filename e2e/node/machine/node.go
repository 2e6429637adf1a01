package machine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// Name is the name of the node. The API server resolves it to reach the kubelet on loopback.
const Name = "localhost"

const (
	// startTimeout bounds each step of a start.
	startTimeout = 2 * time.Minute
	pollInterval = 200 * time.Millisecond
)

// Node is a node that runs real pods. Stop removes all traces of it.
type Node struct {
	h   *harness.Harness
	dir string

	containerd, kubelet, proxy *harness.Process
	proxyBinary                string
	// forwarding is the machine's original setting of IP forwarding.
	forwarding []byte
}

// ClusterOptions returns options for a control plane that a node can join.
func ClusterOptions(o cluster.Options) cluster.Options {
	o.Nodes = -1
	o.Addresses = append(o.Addresses, Address)
	o.APIServerFlags = append(o.APIServerFlags,
		"--bind-address=0.0.0.0", "--advertise-address="+Address.String(), "--endpoint-reconciler-type=lease")
	return o
}

// Start starts the node and waits until it accepts pods. pause is the reference of the sandbox
// image of pods, which must exist in its registry.
func Start(ctx context.Context, h *harness.Harness, pause string) (n *Node, err error) {
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
	if err := n.saveForwarding(); err != nil {
		return n, err
	}
	n.proxyBinary = paths[tools.KubeProxy]
	if n.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return n, err
	}
	if err := writeNetworkConfig(n.dir); err != nil {
		return n, err
	}
	if err := n.startContainerd(ctx, pause); err != nil {
		return n, err
	}
	if err := n.startKubelet(ctx, paths[tools.Kubelet]); err != nil {
		return n, err
	}
	return n, n.startProxy(ctx)
}

func (n *Node) startProxy(ctx context.Context) error {
	config, err := n.h.ControlPlane.ConfigForUser("system:kube-proxy")
	if err != nil {
		return err
	}
	kubeconfig, err := n.h.ControlPlane.WriteKubeconfig("proxy", config)
	if err != nil {
		return err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	// Zero values keep the machine's connection tracking settings.
	n.proxy, err = n.h.RunProgram(n.proxyBinary, config, nil, "--kubeconfig="+kubeconfig, "--proxy-mode=nftables", "--hostname-override="+Name,
		"--cluster-cidr="+subnet, "--healthz-bind-address="+health, "--metrics-bind-address="+metrics,
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	if err != nil {
		return err
	}
	return await(ctx, "kube-proxy to become healthy", func(ctx context.Context) error { return healthy(ctx, "http://"+health+"/healthz") }, n.proxy)
}

func healthy(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return errors.Join(err, res.Body.Close())
}

// ready returns nil if pods can be scheduled to the node.
func (n *Node) ready(ctx context.Context) error {
	node := &corev1.Node{}
	if err := n.h.ControlPlane.Client().Get(ctx, client.ObjectKey{Name: Name}, node); err != nil {
		return err
	}
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("node %s has the taint %s", Name, t.Key)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not Ready: %s", Name, c.Message)
		}
		if c.Type == corev1.NodeReady {
			return nil
		}
	}
	return fmt.Errorf("node %s has no Ready condition", Name)
}

// LogTails returns the last log lines of the node's programs.
func (n *Node) LogTails() string {
	return fmt.Sprintf("kubelet:\n%s\nkube-proxy:\n%s\ncontainerd:\n%s", tail(n.kubelet.Log()), tail(n.proxy.Log()), tail(n.containerd.Log()))
}

// PodLogs returns the folder of the pods' logs.
func (n *Node) PodLogs() string { return n.path("logs") }

// await polls ready until it returns nil. It fails after startTimeout, or when the process ends;
// the error contains the end of its log.
func await(ctx context.Context, what string, ready func(context.Context) error, process *harness.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-process.Done():
			return fmt.Errorf("waiting for %s: the process ended: %w; its log ends with:\n%s", what, process.Err(), tail(process.Log()))
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last error: %w; the log ends with:\n%s", what, ctx.Err(), err, tail(process.Log()))
		}
	}
}

func tail(log string) string {
	lines := strings.Split(log, "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
