// Package autoscaler_test scales a real control plane with kwok nodes, from KsctlAutoScalers on
// another one. Cluster Autoscaler is simulated, over mTLS, and so are the machines; controller
// and agent are the shipped ones.
package autoscaler_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/autoscaler/fakeautoscaler"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

var (
	h *harness.Harness
	// remote is the control plane with the workers.
	remote *cluster.Cluster
	// provider is the address of the node group server, which Cluster Autoscaler calls.
	provider   string
	controller *framework.Controller
	scanner    = &leakscan.Scanner{}
)

func TestAutoscaler(t *testing.T) {
	suite.Run(t, "Autoscaler")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Nodes: 1}, scanner)
	remote = framework.StartCluster(ctx, cluster.Options{Nodes: 1})
	scanner.AddSecret(base64.StdEncoding.EncodeToString(remote.Config().KeyData))
	var err error
	provider, err = cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	controller = framework.StartController(h, providerFlags()...)
}, NodeTimeout(20*time.Minute))

func providerFlags() []string {
	return []string{"--nodegroup-addr=" + provider, "--nodegroup-adv-addr=" + provider}
}

// testCluster is a cluster that scales: the workers of the remote control plane whose names start
// with name.
type testCluster struct {
	ns, name string
	// config is the path of the configuration of its provisioner.
	config string
	agent  *harness.Process
	// flags of its agent, for restarts.
	flags []string
	as    *clusterv1.KsctlAutoScaler
	ca    *fakeautoscaler.Autoscaler
}

// newTestCluster creates a cluster with an agent and a KsctlAutoScaler.
func newTestCluster(ctx context.Context, change ...func(*clusterv1.KsctlAutoScalerSpec)) *testCluster {
	GinkgoHelper()
	s := newBareTestCluster(ctx, change...)
	s.start(ctx)
	return s
}

// start creates the KsctlCluster and the KsctlAutoScaler of a bare cluster.
func (s *testCluster) start(ctx context.Context) {
	GinkgoHelper()
	s.as.Spec.Agent = appsv1.AgentEndpoint{Address: s.startAgent(ctx), SecretRef: localRef("agent")}
	create(ctx, s.cluster())
	create(ctx, s.as)
}

// newBareTestCluster creates a namespace with a kubeconfig, and prepares the KsctlAutoScaler.
func newBareTestCluster(ctx context.Context, change ...func(*clusterv1.KsctlAutoScalerSpec)) *testCluster {
	GinkgoHelper()
	ns := framework.Namespace(ctx, h, "scale")
	s := &testCluster{ns: ns, name: ns, config: filepath.Join(GinkgoT().TempDir(), "knobs.json")}
	s.configure(provisionerConfig{})
	kubeconfig, err := os.ReadFile(remote.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kubeconfig"},
		Data: map[string][]byte{"value": kubeconfig}})
	fast := &metav1.Duration{Duration: time.Second}
	s.as = &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
		Name: "workers"}, Spec: clusterv1.KsctlAutoScalerSpec{
		Schedule:   appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}, RetryInterval: fast},
		ClusterRef: clusterv1.AutoScaledCluster{Name: s.name}, ServiceAccountName: harness.Deployer,
		Pools: []clusterv1.WorkerPool{pool("small", 1, 4), pool("large", 0, 3)},
	}}
	for _, f := range change {
		f(&s.as.Spec)
	}
	s.labelPools()
	DeferCleanup(s.cleanUp)
	return s
}

// cluster returns the KsctlCluster, which has only a kubeconfig.
func (s *testCluster) cluster() *clusterv1.KsctlCluster {
	return &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name},
		Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "kubeconfig"},
			ServiceAccountName: harness.Deployer}}
}

// labelPools makes the pods of the cluster fit only on its own nodes: other specs use the same
// control plane.
func (s *testCluster) labelPools() {
	for i := range s.as.Spec.Pools {
		p := &s.as.Spec.Pools[i]
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels["site"] = s.name
	}
}

// cleanUp deletes everything that the cluster has.
func (s *testCluster) cleanUp(ctx SpecContext) {
	if s.agent != nil {
		s.agent.Kill()
	}
	Expect(client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, s.as))).To(Succeed())
	Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
	Expect(remote.Client().DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"site": s.name})).To(Succeed())
	Expect(client.IgnoreNotFound(remote.Client().
		Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-load"}}))).To(Succeed())
}

// pool returns a pool whose machines have a size that the kwok provisioner knows.
func pool(name string, minSize, maxSize int32) clusterv1.WorkerPool {
	return clusterv1.WorkerPool{Name: name, NodeSize: name, MinSize: minSize, MaxSize: maxSize,
		Capacity: &clusterv1.MachineCapacity{CPU: quantity(cores[name]), Memory: quantity("8Gi")}}
}

// cores are the CPUs of a machine by its size.
var cores = map[string]string{"small": "2", "large": "4"}

// startAgent runs an agent for the workers, which authenticates the controller by a certificate.
func (s *testCluster) startAgent(ctx context.Context) (address string) {
	GinkgoHelper()
	address, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	authority, err := pki.NewAuthority(time.Now())
	Expect(err).NotTo(HaveOccurred())
	server, err := authority.Issue(pki.ServerSubject("127.0.0.1"), time.Now())
	Expect(err).NotTo(HaveOccurred())
	data, err := authority.KeyPairSecretData(server)
	Expect(err).NotTo(HaveOccurred())
	for name, content := range data {
		Expect(os.WriteFile(filepath.Join(dir, name), content, 0o600)).To(Succeed())
	}
	us, err := authority.Issue(pki.ClientSubject(client.ObjectKey{Namespace: s.ns, Name: "controller"}), time.Now())
	Expect(err).NotTo(HaveOccurred())
	data, err = authority.KeyPairSecretData(us)
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "agent"}, Data: data})
	there, err := remote.Namespace(ctx, "agent")
	Expect(err).NotTo(HaveOccurred())
	s.flags = []string{"serve", "--listen=" + address, "--metrics-addr=", "--health-addr=", "--cluster-name=" + s.name,
		"--cloud=local", "--region=LOCAL", "--provisioner=kwok",
		"--kubeconfig=" + remote.Kubeconfig(), "--provisioner-arg=--config=" + s.config, "--namespace=" + there,
		"--no-states", "--drain-timeout=15s",
		"--tls-cert=" + filepath.Join(dir, "tls.crt"), "--tls-key=" + filepath.Join(dir, "tls.key"),
		"--client-ca=" + filepath.Join(dir, "ca.crt")}
	s.runAgent(ctx)
	Eventually(ctx, func() error { // otherwise the controller would retry only after 5 s
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}, soon, 20*time.Millisecond).Should(Succeed())
	return address
}

// runAgent starts the agent, also after it has ended.
func (s *testCluster) runAgent(ctx context.Context) {
	GinkgoHelper()
	binary, err := h.Build(ctx, programs.Agent)
	Expect(err).NotTo(HaveOccurred())
	p, err := h.RunProgram(binary, remote.Config(), nil, s.flags...)
	Expect(err).NotTo(HaveOccurred())
	s.agent = p
	DeferCleanup(func() {
		p.Kill()
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println("agent of", s.name, "\n"+p.Log())
		}
	})
}

// provisionerConfig defines the faults of machines.
type provisionerConfig struct {
	ProviderID string         `json:"providerID,omitempty"`
	NoNode     bool           `json:"noNode,omitempty"`
	Sizes      map[string]any `json:"sizes,omitempty"`
	List       map[string]any `json:"list,omitempty"`
	Create     map[string]any `json:"create,omitempty"`
	Delete     map[string]any `json:"delete,omitempty"`
}

func (s *testCluster) configure(k provisionerConfig) {
	GinkgoHelper()
	k.Sizes = map[string]any{}
	for name, n := range cores {
		k.Sizes[name] = map[string]any{"cpu": n, "memory": "8Gi"}
	}
	data, err := json.Marshal(k)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(s.config+".new", data, 0o600)).To(Succeed())
	Expect(os.Rename(s.config+".new", s.config)).To(Succeed())
}

// autoscaler connects a simulated Cluster Autoscaler for the cluster.
func (s *testCluster) autoscaler(ctx context.Context) *fakeautoscaler.Autoscaler {
	GinkgoHelper()
	var secret corev1.Secret
	Eventually(ctx, func() error {
		return h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler-tls"},
			&secret)
	}, soon).Should(Succeed())
	ca, err := fakeautoscaler.Dial(provider, secret.Data, remote.Client())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(ca.Close)
	s.ca = ca
	return ca
}

// runAutoscaler runs loops of Cluster Autoscaler until the spec ends.
func (s *testCluster) runAutoscaler(ctx context.Context) {
	GinkgoHelper()
	ca := s.autoscaler(ctx)
	looping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ca.Run(looping, 300*time.Millisecond)
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
}

// nodes returns a function for Eventually with index and pool of the nodes of the cluster.
func (s *testCluster) nodes(ctx context.Context) func() ([]string, error) {
	return func() ([]string, error) {
		var all corev1.NodeList
		if err := remote.Client().List(ctx, &all); err != nil {
			return nil, err
		}
		var out []string
		for i := range all.Items {
			if n := &all.Items[i]; strings.HasPrefix(n.Name, s.name+"-vm-wp-") && n.DeletionTimestamp == nil {
				rest := strings.TrimPrefix(n.Name, s.name+"-vm-wp-")
				index, _, _ := strings.Cut(rest, "-")
				out = append(out, index+":"+n.Labels[clusterv1.PoolLabel])
			}
		}
		return out, nil
	}
}

// readySummary returns a function for Eventually with status, reason and message of the Ready
// condition of the KsctlAutoScaler; "" until it is of the current generation.
func (s *testCluster) readySummary(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		if err := s.get(ctx); err != nil {
			return "", err
		}
		ready := apimeta.FindStatusCondition(s.as.Status.Conditions, appsv1.ReadyCondition)
		if ready == nil || ready.ObservedGeneration != s.as.Generation {
			return "", nil
		}
		return string(ready.Status) + " " + ready.Reason + ": " + ready.Message, nil
	}
}

func (s *testCluster) get(ctx context.Context) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(s.as), s.as)
}

// poolCounts returns a function for Eventually with target/registered/ready/creating/deleting of
// a pool.
func (s *testCluster) poolCounts(ctx context.Context, name string) func() (string, error) {
	return func() (string, error) {
		if err := s.get(ctx); err != nil {
			return "", err
		}
		for _, p := range s.as.Status.Pools {
			if p.Name == name {
				return fmt.Sprintf("%d/%d/%d/%d/%d", p.Target, p.Registered, p.Ready, p.Creating, p.Deleting), nil
			}
		}
		return "", nil
	}
}

// commit changes the spec like a sync does.
func (s *testCluster) commit(ctx context.Context, change func(*clusterv1.KsctlAutoScalerSpec)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := s.get(ctx); err != nil {
			return err
		}
		change(&s.as.Spec)
		s.labelPools()
		return h.ControlPlane.Client().Update(ctx, s.as)
	}, soon).Should(Succeed())
}

// createPods creates pods that fit only into one pool. Each needs most of a machine.
func (s *testCluster) createPods(ctx context.Context, poolName string, n int) {
	GinkgoHelper()
	ns := s.podNamespace(ctx)
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: fmt.Sprintf("%s-%d-", poolName, i),
			Labels: map[string]string{"load": s.name}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{clusterv1.PoolLabel: poolName,
				"site": s.name}, Containers: []corev1.Container{{Name: "c", Image: "none",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("1500m")}}}}}}
		Expect(remote.Client().Create(ctx, p)).To(Succeed())
	}
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
}

func absent(ctx context.Context, o client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o))
	}
}

// podNamespace creates the namespace of the cluster's pods unless it exists.
func (s *testCluster) podNamespace(ctx context.Context) string {
	GinkgoHelper()
	name := s.name + "-load"
	err := remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	// Pods need the default ServiceAccount, which a controller creates in each namespace.
	Eventually(ctx, func() error {
		return remote.Client().Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	}, soon).Should(Succeed())
	return name
}

// deletePods deletes the pods of the cluster.
func (s *testCluster) deletePods(ctx context.Context) {
	GinkgoHelper()
	Expect(remote.Client().DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.podNamespace(ctx)),
		client.GracePeriodSeconds(0))).To(Succeed())
}

// runningPods returns a function for Eventually with the number of running pods.
func (s *testCluster) runningPods(ctx context.Context) func() (int, error) {
	return func() (int, error) {
		var pods corev1.PodList
		err := remote.Client().List(ctx, &pods, client.InNamespace(s.name+"-load"))
		n := 0
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				n++
			}
		}
		return n, err
	}
}

func localRef(name string) *fluxmeta.LocalObjectReference {
	return &fluxmeta.LocalObjectReference{Name: name}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// deployment returns the Deployment of Cluster Autoscaler.
func (s *testCluster) deployment(ctx context.Context) *k8sappsv1.Deployment {
	GinkgoHelper()
	d := &k8sappsv1.Deployment{}
	Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler"}, d)).
		To(Succeed())
	return d
}

// request requests a reconcile, and waits until it is handled.
func (s *testCluster) request(ctx context.Context) {
	GinkgoHelper()
	at := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, at)
	Expect(h.ControlPlane.Client().Patch(ctx, s.as, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	Eventually(ctx, func() (string, error) {
		return s.as.Status.LastHandledReconcileAt, s.get(ctx)
	}, soon).Should(Equal(at))
}
