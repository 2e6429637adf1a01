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

// fieldOwner is the field manager of the reconciler.
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

type fullInstall = appsv1.KsctlInstall
type request = reconcile.Request[*fullInstall]
type step func(context.Context, *request) reconcile.Outcome

// fixture holds one object and its reconciler. A spec sets the steps.
type fixture struct {
	*reconcile.Reconciler[*fullInstall]
	key    types.NamespacedName
	clock  *clocktesting.FakePassiveClock
	events *recorder
	gauges *gauges

	// reconcile and finalize are the steps of the next reconcile; called counts both.
	reconcile, finalize step
	called, forgotten   int
	// writes are the write requests, in order.
	writes []string
	// beforeWrite is called once, before the next write.
	beforeWrite func()
	// cachedObject is the object in the cache; nil: the cache is up to date.
	cachedObject *fullInstall
}

func newFixture(ctx context.Context, change ...func(*fullInstall)) *fixture {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "reconcile")
	Expect(err).NotTo(HaveOccurred())
	r := &fixture{key: types.NamespacedName{Namespace: ns, Name: "i"}, clock: clocktesting.NewFakePassiveClock(noon),
		events: &recorder{}, gauges: &gauges{}}
	r.start()
	in := r.newObject()
	for _, f := range change {
		f(in)
	}
	Expect(direct.Create(ctx, in, client.FieldOwner("git"))).To(Succeed())
	return r
}

// start simulates a new process: the in-memory state is empty.
func (r *fixture) start() {
	c := interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if r.cachedObject != nil {
				r.cachedObject.DeepCopyInto(o.(*fullInstall))
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			r.recordWrite("object")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			r.recordWrite(sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	r.Reconciler = &reconcile.Reconciler[*fullInstall]{Client: c, Reader: direct, New: func() *fullInstall {
		return &fullInstall{}
	}, Kind: "KsctlInstall",
		Steps: (*steps)(r), Events: r.events, Metrics: r.gauges, Clock: r.clock, FieldOwner: fieldOwner,
		Jitter: func(d time.Duration) time.Duration { return d }}
}

func (r *fixture) newObject() *fullInstall {
	return &fullInstall{ObjectMeta: metav1.ObjectMeta{Namespace: r.key.Namespace, Name: r.key.Name},
		Spec: appsv1.KsctlInstallSpec{Stack: "s", SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "x"}}}
}

func (r *fixture) recordWrite(what string) {
	r.writes = append(r.writes, what)
	if f := r.beforeWrite; f != nil {
		r.beforeWrite = nil
		f()
	}
}

// run reconciles once with an outcome and returns the writes.
func (r *fixture) run(ctx context.Context, out reconcile.Outcome) (ctrl.Result, []string) {
	GinkgoHelper()
	return r.runWith(ctx, func(context.Context, *request) reconcile.Outcome { return out })
}

// runWith reconciles once with a step and returns the writes.
func (r *fixture) runWith(ctx context.Context, s step) (ctrl.Result, []string) {
	GinkgoHelper()
	r.reconcile, r.finalize, r.writes = s, s, nil
	res, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: r.key})
	Expect(err).NotTo(HaveOccurred())
	return res, r.writes
}

// stored returns the object from the API server.
func (r *fixture) stored(ctx context.Context) *fullInstall {
	GinkgoHelper()
	in := &fullInstall{}
	Expect(direct.Get(ctx, r.key, in)).To(Succeed())
	return in
}

// change updates the object as another writer.
func (r *fixture) change(ctx context.Context, f func(*fullInstall)) {
	GinkgoHelper()
	in := r.stored(ctx)
	f(in)
	Expect(direct.Update(ctx, in, client.FieldOwner("git"))).To(Succeed())
}

func (r *fixture) annotate(ctx context.Context, key, value string) {
	GinkgoHelper()
	r.change(ctx, func(in *fullInstall) { metav1.SetMetaDataAnnotation(&in.ObjectMeta, key, value) })
}

type steps fixture

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

// recorder collects events.
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

// gauges holds the metrics of the object.
type gauges struct {
	durations int
	ready     metav1.ConditionStatus
	suspended *bool
}

func (g *gauges) RecordDuration(string, types.NamespacedName, time.Time) { g.durations++ }
func (g *gauges) Forget(string, types.NamespacedName)                    { *g = gauges{} }
func (g *gauges) RecordStatus(_ string, o reconcile.Object) {
	g.ready, g.suspended = metav1.ConditionUnknown, &o.Schedule().Suspend
	if c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition); c != nil {
		g.ready = c.Status
	}
}
