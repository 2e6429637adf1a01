package cluster

import (
	"context"
	_ "embed" // for the stages
	"fmt"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/tools"
)

const stagesFile = "stages.yaml"

//go:embed stages.yaml
var stages []byte

// fakeNode is the annotation by which kwok knows the nodes that it plays.
const fakeNode = "kwok.x-k8s.io/node"

// program is one client of the API server that belongs to the control plane.
type program struct {
	name, binary, user string
	groups             []string
	args               []string
}

// programs returns what the options ask for.
func (c *Cluster) programs() []program {
	var list []program
	if !c.opts.NoControllerManager {
		list = append(list, program{
			name: tools.ControllerManager, binary: c.binaries[tools.ControllerManager], user: "system:kube-controller-manager",
			args: []string{
				"--leader-elect=false",
				"--secure-port=0",
				"--use-service-account-credentials=true",
				"--service-account-private-key-file=" + c.run.path(serviceAccountFile),
				"--root-ca-file=" + c.run.path(caFile),
				// At the default rate of 20 a second a start takes 5 seconds more.
				"--kube-api-qps=500",
				"--kube-api-burst=1000",
			},
		})
	}
	if !c.opts.NoScheduler {
		list = append(list, program{
			name: tools.Scheduler, binary: c.binaries[tools.Scheduler], user: "system:kube-scheduler",
			args: []string{"--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"},
		})
	}
	if c.opts.nodes() > 0 {
		list = append(list, program{
			name: tools.Kwok, binary: c.binaries[tools.Kwok], user: "kwok", groups: []string{"system:masters"},
			args: []string{
				"--config=" + c.run.path(stagesFile),
				"--manage-all-nodes=false",
				"--manage-nodes-with-annotation-selector=" + fakeNode + "=fake",
				// Addresses that lead nowhere; pods get theirs from the range.
				"--node-ip=192.0.2.1",
				"--cidr=10.244.0.1/16",
				"--node-port=0",
				"--server-address=",
				"--node-lease-duration-seconds=40",
			},
		})
	}
	return list
}

// startControllers starts the API server's clients, makes the nodes, and waits
// until a pod could be created and scheduled.
func (c *Cluster) startControllers(ctx context.Context) error {
	for _, p := range c.programs() {
		config, err := c.ConfigForUser(p.user, p.groups...)
		if err != nil {
			return err
		}
		kubeconfig, err := c.WriteKubeconfig(p.name, config)
		if err != nil {
			return err
		}
		child, err := c.run.launch(p.name, p.binary, append(p.args, "--kubeconfig="+kubeconfig))
		if err != nil {
			return err
		}
		c.others = append(c.others, child)
	}
	// The API server makes it a moment after it calls itself ready.
	defaultNamespace := func(ctx context.Context) error {
		_, err := c.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}
	if err := await(ctx, "the namespace default", startTimeout, defaultNamespace, c.apiServer); err != nil {
		return err
	}
	for i := range c.opts.nodes() {
		if err := c.createNode(ctx, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	if !c.opts.NoControllerManager {
		if err := c.awaitServiceAccount(ctx, metav1.NamespaceDefault); err != nil {
			return err
		}
	}
	for i := range c.opts.nodes() {
		if err := c.awaitNode(ctx, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) createNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{fakeNode: "fake", "node.alpha.kubernetes.io/ttl": "0"},
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: runtime.GOARCH,
		},
	}}
	_, err := c.clientset.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the fake node %s: %w", name, err)
	}
	return nil
}

// awaitNode waits until the scheduler may put pods on a node: it is Ready and
// the controller manager has taken its taints away.
func (c *Cluster) awaitNode(ctx context.Context, name string) error {
	ready := func(ctx context.Context) error {
		node, err := c.clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, t := range node.Spec.Taints {
			return fmt.Errorf("it has the taint %s", t.Key)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it is not Ready")
	}
	return await(ctx, "the fake node "+name, startTimeout, ready, c.others...)
}

// awaitServiceAccount waits for what the controller manager puts into each
// namespace, without which no pod can be created there.
func (c *Cluster) awaitServiceAccount(ctx context.Context, namespace string) error {
	ready := func(ctx context.Context) error {
		if _, err := c.clientset.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.clientset.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	}
	return await(ctx, "the ServiceAccount of namespace "+namespace, startTimeout, ready, c.others...)
}

// Namespace creates a namespace whose name is prefix and some random letters,
// and returns the name. With a controller manager, pods can be created in it
// when Namespace returns. Deleting it is up to the caller.
func (c *Cluster) Namespace(ctx context.Context, prefix string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.TrimSuffix(prefix, "-") + "-"}}
	namespace, err := c.clientset.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace %s-…: %w", prefix, err)
	}
	if c.opts.NoControllerManager {
		return namespace.Name, nil
	}
	return namespace.Name, c.awaitServiceAccount(ctx, namespace.Name)
}
