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

// cacheWith has objects as the controller reads them.
func cacheWith(t *testing.T, objs ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

// TestWhoWasSuspendedMeanwhileWaits: the reconcile has read it before, and who tells of a suspension has
// told it already.
func TestWhoWasSuspendedMeanwhileWaits(t *testing.T) {
	for _, suspend := range []bool{true, false} {
		read := &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "workers"}}
		now := read.DeepCopy()
		now.Spec.Suspend = suspend
		s := &Steps{Client: cacheWith(t, now), Published: nodegroup.NewClusters(), Clock: clock.RealClock{}}
		if err := s.publish(t.Context(), read, &sight{}, &plan{}); err != nil {
			t.Fatal(err)
		}
		told := s.Published.Get(client.ObjectKeyFromObject(read))
		if told == nil || errors.Is(told.Unready, errSuspended) != suspend {
			t.Errorf("suspended %v: Cluster Autoscaler is told %+v", suspend, told)
		}
	}
}
