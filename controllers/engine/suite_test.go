package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// shortRetry is the timeout of these specs for a single expectation; it takes far less.
const shortRetry = 2 * time.Minute

var controlPlane *cluster.Cluster

func TestEngine(t *testing.T) {
	suite.Run(t, "Engine")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(appsv1.AddToScheme(scheme)).To(Succeed())
	var err error
	controlPlane, err = cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true, Audit: true,
		CRDPaths: []string{"../../config/crd/bases"}, Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controlPlane.Stop)
})

// process is one process of a controller, with its in-memory state.
type process struct {
	engine        *engine.Engine
	target        *engine.Target
	client        *engine.Client
	notifications chan string
	stop          func()
}

// installation returns an installation id, which separates the objects of one spec from those of
// others.
func installation(namespace string) string { return "test-" + namespace }

func startProcess(namespace string, o engine.Options) *process {
	GinkgoHelper()
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 100 * time.Millisecond // a crashed process of these specs leaves no request behind
	}
	cfg := controlPlane.Config()
	index, err := live.New(cfg, live.Options{OwnerID: installation(namespace)})
	Expect(err).NotTo(HaveOccurred())
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	Expect(err).NotTo(HaveOccurred())
	dyn, err := engine.NewClient(cfg)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = index.Start(ctx) })
	p := &process{
		engine: engine.New(o),
		target: &engine.Target{ClusterID: plan.LocalCluster, Discovery: engine.NewServerDiscovery(disco), Index: index,
			ClientFor: func(*types.NamespacedName) (*engine.Client, error) { return dyn, nil }},
		client:        dyn,
		notifications: make(chan string, 1000),
	}
	index.Subscribe(func(owner string) {
		select {
		case p.notifications <- owner:
		default:
		}
	})
	var once sync.Once
	p.stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	DeferCleanup(p.stop)
	return p
}

// owner stores its inventory in the status of a KsctlInstall, like the controller.
type owner struct {
	install  *appsv1.KsctlInstall
	inv      *plan.Inventory
	policies plan.Policies
	persists int
}

func (o *owner) Key() plan.OwnerKey {
	return plan.OwnerKey{Installation: installation(o.install.Namespace), Cluster: plan.LocalCluster,
		Kind: "KsctlInstall", Namespace: o.install.Namespace, Name: o.install.Name}
}
func (o *owner) Inventory() *plan.Inventory { return o.inv }
func (o *owner) Policies() plan.Policies    { return o.policies }
func (o *owner) Manifest(_ context.Context, it *plan.Item) (json.RawMessage, error) {
	return it.Manifest, nil
}
func (o *owner) Persist(ctx context.Context) error {
	o.persists++
	o.install.Status.Inventory = o.inv.Status()
	return controlPlane.Client().Status().Update(ctx, o.install)
}

// newOwner creates the KsctlInstall. loadOwner reads it like a new process.
func newOwner(ctx context.Context, namespace, name string) *owner {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.KsctlInstallSpec{Stack: "s", SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "x"}}}
	Expect(controlPlane.Client().Create(ctx, in)).To(Succeed())
	return loadOwner(ctx, namespace, name)
}

func loadOwner(ctx context.Context, namespace, name string) *owner {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{}
	Expect(controlPlane.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, in)).To(Succeed())
	return &owner{install: in, inv: plan.NewInventory(in.Status.Inventory, nil), policies: plan.DefaultPolicies}
}

var retry = engine.RetryPolicy{Interval: 200 * time.Millisecond, ContestedInterval: time.Hour}

// pass returns a pass over the objects of an owner.
func (p *process) pass(o *owner) engine.Pass {
	return engine.Pass{Owner: o, Target: p.target, Client: p.client, Retry: retry}
}

// reconcileUntilReady reconciles repeatedly until the plan is ready.
func (p *process) reconcileUntilReady(ctx context.Context, o *owner,
	components []stacks.RenderedComponent) *engine.Report {
	GinkgoHelper()
	var rep *engine.Report
	Eventually(func() error {
		var err error
		rep, err = p.engine.Reconcile(ctx, p.pass(o), engine.Prepare(ctx, components, o.policies, p.target.Discovery))
		if err != nil {
			return StopTrying(err.Error()).Wrap(err)
		}
		if err := o.Persist(ctx); err != nil {
			return err
		}
		if !rep.Plan.Ready() {
			return fmt.Errorf("not ready: %+v", rep.Plan.Components)
		}
		return nil
	}, shortRetry, 20*time.Millisecond).Should(Succeed(), "the components become ready")
	return rep
}

func (p *process) teardown(ctx context.Context, o *owner) {
	GinkgoHelper()
	Eventually(func() error {
		rep, err := p.engine.Teardown(ctx, p.pass(o))
		if err != nil {
			return StopTrying(err.Error()).Wrap(err)
		}
		if err := o.Persist(ctx); err != nil {
			return err
		}
		if n := o.inv.Len(); n > 0 {
			return fmt.Errorf("%d left: %+v %v", n, rep.Plan.Waits, rep.Errors)
		}
		return nil
	}, shortRetry, 20*time.Millisecond).Should(Succeed(), "everything is removed")
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// render converts YAML documents into a component, like stacks.Render.
func render(component string, docs ...string) stacks.RenderedComponent {
	GinkgoHelper()
	c := stacks.RenderedComponent{Name: component}
	for _, d := range docs {
		var obj struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		j, err := yaml.YAMLToJSON([]byte(d))
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Unmarshal(j, &obj)).To(Succeed())
		group, version, ok := strings.Cut(obj.APIVersion, "/")
		if !ok {
			group, version = "", obj.APIVersion
		}
		c.Objects = append(c.Objects, stacks.Object{
			Ref:     stacks.Ref{Group: group, Kind: obj.Kind, Namespace: obj.Namespace, Name: obj.Name},
			Version: version, Manifest: j, Hash: hash(j),
		})
	}
	return c
}
