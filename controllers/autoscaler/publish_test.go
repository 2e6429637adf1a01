package autoscaler

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// newFakeClient returns a client with the given objects.
func newFakeClient(t *testing.T, objs ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

// The object is suspended after the reconcile has read it. The event of the suspension is already
// handled, so publish must check again.
func TestPublishPausesPollingIfSuspendedMeanwhile(t *testing.T) {
	for _, suspend := range []bool{true, false} {
		read := &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "workers"}}
		now := read.DeepCopy()
		now.Spec.Suspend = suspend
		s := &Steps{Client: newFakeClient(t, now), Published: nodegroup.NewClusters(), Clock: clock.RealClock{}}
		if err := s.publish(t.Context(), read, &observation{}, &scalingPlan{}); err != nil {
			t.Fatal(err)
		}
		published := s.Published.Get(client.ObjectKeyFromObject(read))
		if published == nil || errors.Is(published.UnreadyReason, errSuspended) != suspend {
			t.Errorf("suspended %v: published %+v", suspend, published)
		}
	}
}
