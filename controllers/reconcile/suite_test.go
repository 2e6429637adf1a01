package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// fieldOwner of what the skeleton writes.
const fieldOwner = "skeleton"

var (
	plane  *cluster.Cluster
	direct client.WithWatch
	noon   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

func TestReconciler(t *testing.T) {
	suite.Run(t, "Reconciler")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(appsv1.AddToScheme(scheme)).To(Succeed())
	var err error
	plane, err = cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true, NoControllerManager: true,
		CRDPaths: []string{"../../config/crd/bases"}, Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	direct, err = client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

type install = appsv1.KsctlInstall
type request = reconcile.Request[*install]
type step func(context.Context, *request) reconcile.Outcome

// rig is one object and a reconciler of it, whose steps a spec gives.
type rig struct {
	*reconcile.Reconciler[*install]
	key    types.NamespacedName
	clock  *clocktesting.FakePassiveClock
	events *recorder
	gauges *gauges

	// reconcile and finalize are what the next reconcile does; called counts both.
	reconcile, finalize step
	called, forgotten   int
	// writes are the requests that change something, in order.
	writes []string
	// beforeWrite is called once, before the next of them.
	beforeWrite func()
	// cached is what the cache gives; nil: what the API server has.
	cached *install
}

func newRig(ctx context.Context, change ...func(*install)) *rig {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "reconcile")
	Expect(err).NotTo(HaveOccurred())
	r := &rig{key: types.NamespacedName{Namespace: ns, Name: "i"}, clock: clocktesting.NewFakePassiveClock(noon), events: &recorder{}, gauges: &gauges{}}
	r.start()
	in := r.wanted()
	for _, f := range change {
		f(in)
	}
	Expect(direct.Create(ctx, in, client.FieldOwner("git"))).To(Succeed())
	return r
}

// start begins a new process: what the old one had in memory is gone.
func (r *rig) start() {
	c := interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.cached != nil {
				r.cached.DeepCopyInto(o.(*install))
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.write("object")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.write(sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.Reconciler = &reconcile.Reconciler[*install]{Client: c, Reader: direct, New: func() *install { return &install{} }, Kind: "KsctlInstall",
		Steps: (*steps)(r), Events: r.events, Metrics: r.gauges, Clock: r.clock, FieldOwner: fieldOwner,
		Jitter: func(d time.Duration) time.Duration { return d }}
}

func (r *rig) wanted() *install {
	return &install{ObjectMeta: metav1.ObjectMeta{Namespace: r.key.Namespace, Name: r.key.Name},
		Spec: appsv1.KsctlInstallSpec{Stack: "s", SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "x"}}}
}

func (r *rig) write(what string) {
	r.writes = append(r.writes, what)
	if f := r.beforeWrite; f != nil {
		r.beforeWrite = nil
		f()
	}
}

// run reconciles once with an outcome.
func (r *rig) run(ctx context.Context, out reconcile.Outcome) (ctrl.Result, []string) {
	GinkgoHelper()
	return r.runWith(ctx, func(context.Context, *request) reconcile.Outcome { return out })
}

// runWith reconciles once, and returns what was written.
func (r *rig) runWith(ctx context.Context, s step) (ctrl.Result, []string) {
	GinkgoHelper()
	r.reconcile, r.finalize, r.writes = s, s, nil
	res, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: r.key})
	Expect(err).NotTo(HaveOccurred())
	return res, r.writes
}

// stored is the object as the API server has it.
func (r *rig) stored(ctx context.Context) *install {
	GinkgoHelper()
	in := &install{}
	Expect(direct.Get(ctx, r.key, in)).To(Succeed())
	return in
}

// change writes the object as somebody else.
func (r *rig) change(ctx context.Context, f func(*install)) {
	GinkgoHelper()
	in := r.stored(ctx)
	f(in)
	Expect(direct.Update(ctx, in, client.FieldOwner("git"))).To(Succeed())
}

func (r *rig) annotate(ctx context.Context, key, value string) {
	GinkgoHelper()
	r.change(ctx, func(in *install) { metav1.SetMetaDataAnnotation(&in.ObjectMeta, key, value) })
}

type steps rig

func (s *steps) Reconcile(ctx context.Context, req *request) reconcile.Outcome {
	s.called++
	return s.reconcile(ctx, req)
}

func (s *steps) Finalize(ctx context.Context, req *request) reconcile.Outcome {
	s.called++
	return s.finalize(ctx, req)
}

func (s *steps) Forget(key types.NamespacedName) {
	Expect(key).To(Equal(s.key))
	s.forgotten++
}

// recorder keeps events.
type recorder struct{ got []event }

type event struct {
	kind, reason, message string
	annotations           map[string]string
}

func (r *recorder) Event(_ runtime.Object, kind, reason, message string) {
	r.got = append(r.got, event{kind, reason, message, nil})
}

func (r *recorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) AnnotatedEventf(_ runtime.Object, ann map[string]string, kind, reason, format string, args ...any) {
	r.got = append(r.got, event{kind, reason, fmt.Sprintf(format, args...), maps.Clone(ann)})
}

// gauges are the metrics of the one object.
type gauges struct {
	durations int
	ready     metav1.ConditionStatus
	suspended *bool
}

func (g *gauges) Took(string, types.NamespacedName, time.Time) { g.durations++ }
func (g *gauges) Forget(string, types.NamespacedName)          { *g = gauges{} }
func (g *gauges) Stands(_ string, o reconcile.Object) {
	g.ready, g.suspended = metav1.ConditionUnknown, &o.Schedule().Suspend
	if c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition); c != nil {
		g.ready = c.Status
	}
}
