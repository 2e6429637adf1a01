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
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 2 * time.Minute

var plane *cluster.Cluster

func TestEngine(t *testing.T) {
	suite.Run(t, "Engine")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(appsv1.AddToScheme(scheme)).To(Succeed())
	var err error
	plane, err = cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true, Audit: true,
		CRDPaths: []string{"../../config/crd/bases"}, Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
})

// process is one life of a controller: what it has in memory goes with it.
type process struct {
	engine *engine.Engine
	target *engine.Target
	client *engine.Client
	woken  chan string
	stop   func()
}

// installation makes the objects of one spec distinguishable from those of others.
func installation(namespace string) string { return "test-" + namespace }

func start(namespace string, o engine.Options) *process {
	GinkgoHelper()
	cfg := plane.Config()
	index, err := live.New(cfg, live.Options{Owner: installation(namespace)})
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
		target: &engine.Target{ClusterID: engine.LocalCluster, Discovery: engine.NewServerDiscovery(disco), Index: index},
		client: dyn,
		woken:  make(chan string, 1000),
	}
	index.Subscribe(func(owner string) {
		select {
		case p.woken <- owner:
		default:
		}
	})
	var once sync.Once
	p.stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	DeferCleanup(p.stop)
	return p
}

// owner keeps its inventory in the status of a KsctlInstall, as the controller does.
type owner struct {
	install  *appsv1.KsctlInstall
	inv      *engine.Inventory
	policies engine.Policies
	persists int
}

func (o *owner) Key() engine.OwnerKey {
	return engine.OwnerKey{Installation: installation(o.install.Namespace), Cluster: engine.LocalCluster,
		Kind: "KsctlInstall", Namespace: o.install.Namespace, Name: o.install.Name}
}
func (o *owner) Inventory() *engine.Inventory { return o.inv }
func (o *owner) Policies() engine.Policies    { return o.policies }
func (o *owner) Manifest(_ context.Context, it *engine.Item) (json.RawMessage, error) {
	return it.Manifest, nil
}
func (o *owner) Persist(ctx context.Context) error {
	o.persists++
	o.install.Status.Inventory = o.inv.Status()
	return plane.Client().Status().Update(ctx, o.install)
}

// newOwner makes the KsctlInstall; load reads it as a new process would.
func newOwner(ctx context.Context, namespace, name string) *owner {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.KsctlInstallSpec{Stack: "s", SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "x"}}}
	Expect(plane.Client().Create(ctx, in)).To(Succeed())
	return load(ctx, namespace, name)
}

func load(ctx context.Context, namespace, name string) *owner {
	GinkgoHelper()
	in := &appsv1.KsctlInstall{}
	Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, in)).To(Succeed())
	return &owner{install: in, inv: engine.NewInventory(in.Status.Inventory, nil), policies: engine.DefaultPolicies}
}

var retry = engine.Retry{Interval: 200 * time.Millisecond, Contested: time.Hour}

// settle reconciles as often as the index wakes it, until the plan is ready.
func (p *process) settle(ctx context.Context, o *owner, components []stacks.RenderedComponent) *engine.Report {
	GinkgoHelper()
	var rep *engine.Report
	Eventually(func() error {
		var err error
		rep, err = p.engine.Reconcile(ctx, p.target, p.client, o, engine.Prepare(ctx, components, o.policies, p.target.Discovery), retry)
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
	}, soon, 20*time.Millisecond).Should(Succeed(), "the components become ready")
	return rep
}

func (p *process) teardown(ctx context.Context, o *owner) {
	GinkgoHelper()
	Eventually(func() error {
		rep, err := p.engine.Teardown(ctx, p.target, p.client, o, retry)
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
	}, soon, 20*time.Millisecond).Should(Succeed(), "everything goes")
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// render turns YAML documents into a component, as stacks.Render would.
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
