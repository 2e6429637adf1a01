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

// Name of the node. With it the API server reaches the kubelet on loopback.
const Name = "localhost"

const (
	// startTimeout bounds each step of a start.
	startTimeout = 2 * time.Minute
	pollInterval = 200 * time.Millisecond
)

// Node is a node that runs pods. Stop leaves nothing of it.
type Node struct {
	h   *harness.Harness
	dir string

	containerd, kubelet, proxy *harness.Process
	proxyBinary                string
	// forwarding is what the machine was set to.
	forwarding []byte
}

// ClusterOptions complete those of a control plane that the node is to join.
func ClusterOptions(o cluster.Options) cluster.Options {
	o.Nodes = -1
	o.Addresses = append(o.Addresses, Address)
	o.APIServerFlags = append(o.APIServerFlags,
		"--bind-address=0.0.0.0", "--advertise-address="+Address.String(), "--endpoint-reconciler-type=lease")
	return o
}

// Start makes the node and waits until it takes pods. The sandbox of each pod is made
// of the image pause, which the registry of its name must have.
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
		return n, fmt.Errorf("what an earlier run has left: %w", err)
	}
	if err := n.remember(); err != nil {
		return n, err
	}
	n.proxyBinary = paths[tools.KubeProxy]
	if n.dir, err = os.MkdirTemp("", folders); err != nil {
		return n, err
	}
	if err := network(n.dir); err != nil {
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
	config, err := n.h.Plane.ConfigForUser("system:kube-proxy")
	if err != nil {
		return err
	}
	kubeconfig, err := n.h.Plane.WriteKubeconfig("proxy", config)
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
	// It sets nothing of connection tracking: that is the machine's.
	n.proxy, err = n.h.RunProgram(n.proxyBinary, config, nil, "--kubeconfig="+kubeconfig, "--proxy-mode=nftables", "--hostname-override="+Name,
		"--cluster-cidr="+subnet, "--healthz-bind-address="+health, "--metrics-bind-address="+metrics,
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	if err != nil {
		return err
	}
	return await(ctx, "kube-proxy is healthy", func(ctx context.Context) error { return healthy(ctx, "http://"+health+"/healthz") }, n.proxy)
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

// ready is nil when the scheduler may put pods on the node.
func (n *Node) ready(ctx context.Context) error {
	node := &corev1.Node{}
	if err := n.h.Plane.Client().Get(ctx, client.ObjectKey{Name: Name}, node); err != nil {
		return err
	}
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("it has the taint %s", t.Key)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("it is not Ready: %s", c.Message)
		}
		if c.Type == corev1.NodeReady {
			return nil
		}
	}
	return errors.New("it has not said whether it is Ready")
}

// Tell is what the programs of the node have said last.
func (n *Node) Tell() string {
	return fmt.Sprintf("kubelet:\n%s\nkube-proxy:\n%s\ncontainerd:\n%s", tail(n.kubelet.Log()), tail(n.proxy.Log()), tail(n.containerd.Log()))
}

// Logs is the folder of the logs of pods.
func (n *Node) Logs() string { return n.path("logs") }

// await asks until the answer is nil, and ends with what a program has said last.
func await(ctx context.Context, what string, ready func(context.Context) error, on *harness.Process) error {
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
		case <-on.Done():
			return fmt.Errorf("%s: it ended: %w; its log ends with:\n%s", what, on.Err(), tail(on.Log()))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %w; its log ends with:\n%s", what, ctx.Err(), err, tail(on.Log()))
		}
	}
}

func tail(log string) string {
	lines := strings.Split(log, "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
