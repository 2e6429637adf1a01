package remove

import (
	"context"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// sourceClient returns a client with a source at a revision, or without a source if the revision is
// empty.
func sourceClient(t *testing.T, revision string, others ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(others...)
	if revision != "" {
		b = b.WithObjects(&appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "src"},
			Status: appsv1.KsctlSourceStatus{Artifact: &fluxmeta.Artifact{URL: "http://x", Revision: revision}}})
	}
	return b.Build()
}

// A missing component is reported by the newest revision of the source, not by the cached one: no
// event of a source enqueues a KsctlRemove.
func TestUnknownComponentsUseNewestSource(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Generation: 1}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: appsv1.KsctlSourceKind, Name: "src"}
	in.Status.Components = []appsv1.ComponentStatus{{Name: "base"}}
	in.Status.LastAttemptedRevision = "r2"
	in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
		ObservedGeneration: 1}}
	rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rm"},
		Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "web"}, Components: []string{"new"}}}
	for name, tc := range map[string]struct {
		cached, stored string
		down           bool
		stalls         bool
		until          time.Time
	}{
		"cache and API server current": {cached: "r2", stored: "r2", stalls: true},
		"stale cache":                  {cached: "r2", stored: "r3"},
		"cache older than the install": {cached: "r1", stored: "r2", stalls: true},
		"not in the cache":             {stored: "r2", stalls: true},
		"deleted, but in the cache":    {cached: "r2", until: now.Add(reconcile.DefaultRetryInterval)},
		"API server unavailable": {cached: "r2", stored: "r2", down: true,
			until: now.Add(reconcile.DefaultRetryInterval)},
	} {
		t.Run(name, func(t *testing.T) {
			cached, direct := sourceClient(t, tc.cached, in.DeepCopy()), sourceClient(t, tc.stored)
			if tc.down {
				direct = interceptor.NewClient(direct.(client.WithWatch), interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object,
						...client.GetOption) error {
						return apierrors.NewServiceUnavailable("no")
					}})
			}
			b := &ByInstall{Client: cached, Direct: direct,
				Targets: &target.Resolver{Cache: cached, Local: &engine.Target{ClusterID: plan.LocalCluster}},
				Content: &content.Loader{Sources: &sourceref.Resolver{Client: cached}},
				Clock:   testclock.NewFakePassiveClock(now)}
			switch out := b.Reconcile(t.Context(),
				&reconcile.Request[*appsv1.KsctlRemove]{Object: rm.DeepCopy()}).(type) {
			case reconcile.Stalled:
				if !tc.stalls || out.Reason != appsv1.NoSuchComponentReason {
					t.Errorf("%+v", out)
				}
			case reconcile.Waiting:
				if tc.stalls || !out.RequeueAt.Equal(tc.until) {
					t.Errorf("%+v", out)
				}
			default:
				t.Errorf("%+v", out)
			}
		})
	}
}
