package bysource

import (
	"context"
	"errors"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks"
)

// sourceClient returns a client with a source at a revision, or without a source if the revision is
// empty.
func sourceClient(t *testing.T, revision string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	if revision != "" {
		b = b.WithObjects(&appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "src"},
			Status: appsv1.KsctlSourceStatus{Artifact: &fluxmeta.Artifact{URL: "http://x", Revision: revision}}})
	}
	return b.Build()
}

// The rehearsal uses the current revision of the source, not the cached one: it is not updated
// later, and no event of a source enqueues a KsctlRemove.
func TestRehearsalUsesNewestSource(t *testing.T) {
	stop := errors.New("far enough")
	for name, tc := range map[string]struct{ cached, stored, from string }{
		"cache current":             {"r1", "r1", "r1"},
		"stale cache":               {"r1", "r2", "r2"},
		"not in the cache":          {"", "r1", "r1"},
		"deleted, but in the cache": {"r1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rm"},
				Spec: appsv1.KsctlRemoveSpec{SourceRef: &appsv1.SourceRef{Kind: appsv1.KsctlSourceKind, Name: "src"},
					Stack: "app"}}
			s := &Steps{Direct: sourceClient(t, tc.stored),
				Content: &content.Loader{Sources: &sourceref.Resolver{Client: sourceClient(t, tc.cached)}},
				Clock:   testclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
			cluster := &engine.Target{Capabilities: func(context.Context) (stacks.Capabilities, error) {
				return stacks.Capabilities{}, stop
			}}
			out, ok := s.rehearse(t.Context(), &owner{req: &reconcile.Request[*appsv1.KsctlRemove]{Object: rm},
				target: cluster}, clients{}, "asked").(reconcile.Retry)
			if !ok || out.Revision != tc.from || errors.Is(out.Err, stop) != (tc.from != "") {
				t.Errorf("%+v", out)
			}
		})
	}
}
