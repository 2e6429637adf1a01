// Package autoscaler_test scales a real control plane with kwok nodes, from KsctlAutoScalers of
// another one: Cluster Autoscaler's side is played, over mTLS, and so are the machines; the
// controller and the agent are as they are shipped.
package autoscaler_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/autoscaler/casim"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 4 * time.Minute

var (
	h *harness.Harness
	// remote has the workers.
	remote *cluster.Cluster
	// provider is where Cluster Autoscaler is answered.
	provider  string
	inProcess *harness.Controller
	heard     = &witness.Witness{}
)

func TestAutoscaler(t *testing.T) {
	suite.Run(t, "Autoscaler")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, heard.Writer(witness.Log)))))
	var err error
	h, err = harness.Start(ctx, cluster.Options{Nodes: 1})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	remote, err = cluster.Start(ctx, cluster.Options{Nodes: 1})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return remote.Stop() })
	heard.Secret(base64.StdEncoding.EncodeToString(remote.Config().KeyData))
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(heard.Process()).To(Succeed())
		Expect(heard.Verdict(ctx)).To(Succeed())
	})
	provider, err = cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	startController()
	DeferCleanup(func() error { return inProcess.Stop() })
}, NodeTimeout(20*time.Minute))

func providerFlags() []string {
	return []string{"--nodegroup-addr=" + provider, "--nodegroup-adv-addr=" + provider}
}

// startController runs the controller in this process.
func startController() {
	GinkgoHelper()
	var err error
	inProcess, err = h.StartController(providerFlags()...)
	Expect(err).NotTo(HaveOccurred())
}

// site is a cluster that scales: workers of the remote control plane whose names begin with name.
type site struct {
	ns, name string
	// knobs of its provisioner.
	knobs string
	agent *harness.Process
	// flags of its agent, to start it again.
	flags []string
	as    *clusterv1.KsctlAutoScaler
	ca    *casim.Autoscaler
}

// newSite makes a cluster with an agent, and a KsctlAutoScaler of it.
func newSite(ctx context.Context, change ...func(*clusterv1.KsctlAutoScalerSpec)) *site {
	GinkgoHelper()
	s := bareSite(ctx, change...)
	s.begin(ctx)
	return s
}

// begin makes the cluster of a bare site, which scales from here on.
func (s *site) begin(ctx context.Context) {
	GinkgoHelper()
	s.as.Spec.Agent = appsv1.AgentEndpoint{Address: s.startAgent(ctx), SecretRef: localRef("agent")}
	create(ctx, s.cluster())
	create(ctx, s.as)
}

// bareSite has a namespace with a kubeconfig, and says what the KsctlAutoScaler is to be like.
func bareSite(ctx context.Context, change ...func(*clusterv1.KsctlAutoScalerSpec)) *site {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "scale")
	Expect(err).NotTo(HaveOccurred())
	s := &site{ns: ns, name: ns, knobs: filepath.Join(GinkgoT().TempDir(), "knobs.json")}
	s.turn(knobs{})
	kubeconfig, err := os.ReadFile(remote.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}})
	fast := &metav1.Duration{Duration: time.Second}
	s.as = &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "workers"}, Spec: clusterv1.KsctlAutoScalerSpec{
		Schedule:   appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}, RetryInterval: fast},
		ClusterRef: clusterv1.AutoScaledCluster{Name: s.name}, ServiceAccountName: harness.Deployer,
		Pools: []clusterv1.WorkerPool{pool("small", 1, 4), pool("large", 0, 3)},
	}}
	for _, f := range change {
		f(&s.as.Spec)
	}
	s.own()
	DeferCleanup(s.leave)
	return s
}

// cluster that scales, by a kubeconfig alone.
func (s *site) cluster() *clusterv1.KsctlCluster {
	return &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name},
		Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "kubeconfig"}, ServiceAccountName: harness.Deployer}}
}

// own has the site's pods fit on the site's nodes alone: the control plane is others', too.
func (s *site) own() {
	for i := range s.as.Spec.Pools {
		p := &s.as.Spec.Pools[i]
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels["site"] = s.name
	}
}

// leave takes everything away that the site has.
func (s *site) leave(ctx SpecContext) {
	if s.agent != nil {
		s.agent.Kill()
	}
	Expect(client.IgnoreNotFound(h.Plane.Client().Delete(ctx, s.as))).To(Succeed())
	Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
	Expect(remote.Client().DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"site": s.name})).To(Succeed())
	Expect(client.IgnoreNotFound(remote.Client().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-load"}}))).To(Succeed())
}

// pool has machines that kwok's provisioner knows by their size.
func pool(name string, least, most int32) clusterv1.WorkerPool {
	return clusterv1.WorkerPool{Name: name, NodeSize: name, MinSize: least, MaxSize: most,
		Capacity: &clusterv1.MachineCapacity{CPU: quantity(cores[name]), Memory: quantity("8Gi")}}
}

// cores of a machine.
var cores = map[string]string{"small": "2", "large": "4"}

// startAgent runs an agent for the site's workers, which knows the controller by a certificate.
func (s *site) startAgent(ctx context.Context) (address string) {
	GinkgoHelper()
	address, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	authority, err := pki.NewAuthority(time.Now())
	Expect(err).NotTo(HaveOccurred())
	server, err := authority.Issue(pki.Server("127.0.0.1"), time.Now())
	Expect(err).NotTo(HaveOccurred())
	data, err := authority.PairData(server)
	Expect(err).NotTo(HaveOccurred())
	for name, content := range data {
		Expect(os.WriteFile(filepath.Join(dir, name), content, 0o600)).To(Succeed())
	}
	us, err := authority.Issue(pki.Client(client.ObjectKey{Namespace: s.ns, Name: "controller"}), time.Now())
	Expect(err).NotTo(HaveOccurred())
	data, err = authority.PairData(us)
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "agent"}, Data: data})
	there, err := remote.Namespace(ctx, "agent")
	Expect(err).NotTo(HaveOccurred())
	s.flags = []string{"serve", "--listen=" + address, "--metrics-addr=", "--health-addr=", "--cluster-name=" + s.name, "--cloud=local", "--region=LOCAL", "--provisioner=kwok",
		"--kubeconfig=" + remote.Kubeconfig(), "--provisioner-arg=--config=" + s.knobs, "--namespace=" + there, "--no-states", "--drain-timeout=15s",
		"--tls-cert=" + filepath.Join(dir, "tls.crt"), "--tls-key=" + filepath.Join(dir, "tls.key"), "--client-ca=" + filepath.Join(dir, "ca.crt")}
	s.runAgent(ctx)
	Eventually(ctx, func() error { // the controller tries again in 5s only
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}, soon, 20*time.Millisecond).Should(Succeed())
	return address
}

// runAgent starts the agent, anew when it has ended.
func (s *site) runAgent(ctx context.Context) {
	GinkgoHelper()
	binary, err := h.Agent(ctx)
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

// knobs say what goes wrong with machines.
type knobs struct {
	ProviderID string         `json:"providerID,omitempty"`
	NoNode     bool           `json:"noNode,omitempty"`
	Sizes      map[string]any `json:"sizes,omitempty"`
	List       map[string]any `json:"list,omitempty"`
	Create     map[string]any `json:"create,omitempty"`
	Delete     map[string]any `json:"delete,omitempty"`
}

func (s *site) turn(k knobs) {
	GinkgoHelper()
	k.Sizes = map[string]any{}
	for name, n := range cores {
		k.Sizes[name] = map[string]any{"cpu": n, "memory": "8Gi"}
	}
	data, err := json.Marshal(k)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(s.knobs+".new", data, 0o600)).To(Succeed())
	Expect(os.Rename(s.knobs+".new", s.knobs)).To(Succeed())
}

// autoscaler plays Cluster Autoscaler for the site.
func (s *site) autoscaler(ctx context.Context) *casim.Autoscaler {
	GinkgoHelper()
	var secret corev1.Secret
	Eventually(ctx, func() error {
		return h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler-tls"}, &secret)
	}, soon).Should(Succeed())
	ca, err := casim.Dial(provider, secret.Data, remote.Client())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(ca.Close)
	s.ca = ca
	return ca
}

// loops has Cluster Autoscaler go on until the spec ends.
func (s *site) loops(ctx context.Context) {
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

// nodes of the site, by their index.
func (s *site) nodes(ctx context.Context) func() ([]string, error) {
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

// stands is how the site's KsctlAutoScaler stands at its spec.
func (s *site) stands(ctx context.Context) func() (string, error) {
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

func (s *site) get(ctx context.Context) error {
	return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(s.as), s.as)
}

// numbers of a pool: target/registered/ready/creating/deleting.
func (s *site) numbers(ctx context.Context, name string) func() (string, error) {
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

// commit changes the spec, as a sync would.
func (s *site) commit(ctx context.Context, change func(*clusterv1.KsctlAutoScalerSpec)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := s.get(ctx); err != nil {
			return err
		}
		change(&s.as.Spec)
		s.own()
		return h.Plane.Client().Update(ctx, s.as)
	}, soon).Should(Succeed())
}

// load makes pods that fit into a pool alone, each of which takes most of a machine.
func (s *site) load(ctx context.Context, poolName string, n int) {
	GinkgoHelper()
	ns := s.podNamespace(ctx)
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: fmt.Sprintf("%s-%d-", poolName, i), Labels: map[string]string{"load": s.name}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{clusterv1.PoolLabel: poolName, "site": s.name}, Containers: []corev1.Container{{Name: "c", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("1500m")}}}}}}
		Expect(remote.Client().Create(ctx, p)).To(Succeed())
	}
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.Plane.Client().Create(ctx, o)).To(Succeed())
}

func absent(ctx context.Context, o client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)) }
}

// podNamespace has the site's pods.
func (s *site) podNamespace(ctx context.Context) string {
	GinkgoHelper()
	name := s.name + "-load"
	err := remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	// Pods need the account that a controller makes in each namespace.
	Eventually(ctx, func() error {
		return remote.Client().Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	}, soon).Should(Succeed())
	return name
}

// unload deletes the site's pods.
func (s *site) unload(ctx context.Context) {
	GinkgoHelper()
	Expect(remote.Client().DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.podNamespace(ctx)), client.GracePeriodSeconds(0))).To(Succeed())
}

// running is how many of the site's pods run.
func (s *site) running(ctx context.Context) func() (int, error) {
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

// deployment of Cluster Autoscaler.
func (s *site) deployment(ctx context.Context) *k8sappsv1.Deployment {
	GinkgoHelper()
	d := &k8sappsv1.Deployment{}
	Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "workers-autoscaler"}, d)).To(Succeed())
	return d
}

// request asks for a reconcile, and waits for it.
func (s *site) request(ctx context.Context) {
	GinkgoHelper()
	at := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, at)
	Expect(h.Plane.Client().Patch(ctx, s.as, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
	Eventually(ctx, func() (string, error) { return s.as.Status.LastHandledReconcileAt, s.get(ctx) }, soon).Should(Equal(at))
}
