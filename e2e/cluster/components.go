package cluster

import (
	"context"
	_ "embed" // for stages.yaml
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

// fakeNode is the annotation by which kwok selects the nodes that it manages.
const fakeNode = "kwok.x-k8s.io/node"

// componentSpec describes a control plane component that is a client of the API server.
type componentSpec struct {
	name, user string
	groups     []string
	args       []string
}

// componentSpecs returns the components that the options enable.
func (c *Cluster) componentSpecs() []componentSpec {
	var list []componentSpec
	if !c.opts.NoControllerManager {
		list = append(list, componentSpec{
			name: tools.ControllerManager, user: "system:kube-controller-manager",
			args: []string{
				"--leader-elect=false",
				"--secure-port=0",
				"--use-service-account-credentials=true",
				"--service-account-private-key-file=" + c.run.path(serviceAccountFile),
				"--root-ca-file=" + c.run.path(caFile),
				// At the default of 20 requests per second a start takes 5 seconds longer.
				"--kube-api-qps=500",
				"--kube-api-burst=1000",
			},
		})
	}
	if !c.opts.NoScheduler {
		list = append(list, componentSpec{
			name: tools.Scheduler, user: "system:kube-scheduler",
			args: []string{"--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"},
		})
	}
	if c.opts.nodes() > 0 {
		list = append(list, componentSpec{
			name: tools.Kwok, user: "kwok", groups: []string{"system:masters"},
			args: []string{
				"--config=" + c.run.path(stagesFile),
				"--manage-all-nodes=false",
				"--manage-nodes-with-annotation-selector=" + fakeNode + "=fake",
				// An unroutable address for nodes; pods get addresses from the CIDR.
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

// startComponents starts the API server's clients, creates the fake nodes, and waits until a pod
// could be created and scheduled.
func (c *Cluster) startComponents(ctx context.Context) error {
	for _, p := range c.componentSpecs() {
		config, err := c.ConfigForUser(p.user, p.groups...)
		if err != nil {
			return err
		}
		kubeconfig, err := c.WriteKubeconfig(p.name, config)
		if err != nil {
			return err
		}
		child, err := c.launchTool(p.name, append(p.args, "--kubeconfig="+kubeconfig))
		if err != nil {
			return err
		}
		c.components = append(c.components, child)
	}
	// The API server creates the namespace a moment after it reports ready.
	defaultNamespace := func(ctx context.Context) error {
		_, err := c.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}
	if err := Await(ctx, "the namespace default", startTimeout, defaultNamespace, c.apiServer); err != nil {
		return err
	}
	for i := range c.opts.nodes() {
		if err := c.createNode(ctx, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	if !c.opts.NoControllerManager {
		if err := c.AwaitServiceAccount(ctx, metav1.NamespaceDefault); err != nil {
			return err
		}
	}
	for i := range c.opts.nodes() {
		name := fmt.Sprintf("node-%d", i)
		ready := func(ctx context.Context) error { return c.NodeReady(ctx, name) }
		if err := Await(ctx, "the fake node "+name, startTimeout, ready, c.components...); err != nil {
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
		return fmt.Errorf("creating the fake node %s: %w", name, err)
	}
	return nil
}

// NodeReady returns nil if pods can be scheduled to a node: it is Ready and the controller manager
// has removed its taints.
func (c *Cluster) NodeReady(ctx context.Context, name string) error {
	node, err := c.clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("node %s has the taint %s", name, t.Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", name)
}

// AwaitServiceAccount waits for the default ServiceAccount and the CA ConfigMap that the controller
// manager creates in each namespace. Without them no pod can be created there.
func (c *Cluster) AwaitServiceAccount(ctx context.Context, namespace string) error {
	ready := func(ctx context.Context) error {
		if _, err := c.clientset.CoreV1().ServiceAccounts(namespace).
			Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := c.clientset.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	}
	return Await(ctx, "the ServiceAccount of namespace "+namespace, startTimeout, ready, c.components...)
}

// Namespace creates a namespace, with a name of the prefix and random letters, and returns the
// name. If the cluster has a controller manager, pods can be created in the namespace when
// Namespace returns. The caller deletes the namespace.
func (c *Cluster) Namespace(ctx context.Context, prefix string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.TrimSuffix(prefix, "-") + "-"}}
	namespace, err := c.clientset.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a namespace %s-…: %w", prefix, err)
	}
	if c.opts.NoControllerManager {
		return namespace.Name, nil
	}
	return namespace.Name, c.AwaitServiceAccount(ctx, namespace.Name)
}
