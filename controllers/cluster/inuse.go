package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// onCluster is the field by which those are found that have objects on a cluster.
const onCluster = "status.cluster"

// placeOf is the cluster that an object of ours has objects on; "": none but this one.
func placeOf(o client.Object) string {
	switch o := o.(type) {
	case *appsv1.KsctlInstall:
		return o.Status.Cluster
	case *appsv1.KsctlRemove:
		if o.Status.Removed != nil { // before it has touched nothing
			return o.Status.Cluster
		}
	case *clusterv1.KsctlAutoScaler:
		if len(o.Status.Pools) > 0 { // its nodes are marked
			return target.ClusterID(o.Namespace, o.Spec.ClusterRef.Name)
		}
	}
	return ""
}

func places(o client.Object) []string {
	if id := placeOf(o); id != "" {
		return []string{id}
	}
	return nil
}

// usersNow are those who have objects on a cluster, by the cache; asked of the API server where
// that knows none.
func (s *Steps) usersNow(ctx context.Context, obj *clusterv1.KsctlCluster) ([]string, error) {
	known, err := s.users(ctx, obj)
	if err != nil || len(known) > 0 {
		return known, err
	}
	return users(ctx, s.Direct, obj)
}

// users are those who have objects on a cluster, by the cache.
func (s *Steps) users(ctx context.Context, obj *clusterv1.KsctlCluster) ([]string, error) {
	return users(ctx, s.Client, obj, client.MatchingFields{onCluster: target.ClusterID(obj.Namespace, obj.Name)}, client.UnsafeDisableDeepCopy)
}

// users names those who have objects on a cluster, as a reader knows. Options may select them.
func users(ctx context.Context, reader client.Reader, obj *clusterv1.KsctlCluster, opts ...client.ListOption) ([]string, error) {
	var (
		id       = target.ClusterID(obj.Namespace, obj.Name)
		installs appsv1.KsctlInstallList
		removes  appsv1.KsctlRemoveList
		scalers  clusterv1.KsctlAutoScalerList
		out      []string
	)
	for _, list := range []client.ObjectList{&installs, &removes, &scalers} {
		if err := reader.List(ctx, list, opts...); err != nil {
			return nil, fmt.Errorf("looking for who uses the cluster: %w", err)
		}
	}
	for i := range installs.Items {
		if in := &installs.Items[i]; placeOf(in) == id {
			out = append(out, "KsctlInstall "+in.Namespace+"/"+in.Name)
		}
	}
	for i := range removes.Items {
		if rm := &removes.Items[i]; placeOf(rm) == id {
			out = append(out, "KsctlRemove "+rm.Namespace+"/"+rm.Name)
		}
	}
	for i := range scalers.Items {
		if as := &scalers.Items[i]; placeOf(as) == id {
			out = append(out, "KsctlAutoScaler "+as.Namespace+"/"+as.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// maxUsers is how many users a condition names before it counts.
const maxUsers = 5

func listed(users []string) string {
	if len(users) <= maxUsers {
		return strings.Join(users, ", ")
	}
	return strings.Join(users[:maxUsers], ", ") + fmt.Sprintf(" and %d more", len(users)-maxUsers)
}

// used writes down who has objects on a cluster.
func (s *Steps) used(obj *clusterv1.KsctlCluster, users []string) {
	if len(users) == 0 {
		apimeta.RemoveStatusCondition(&obj.Status.Conditions, clusterv1.InUseCondition)
		return
	}
	apimeta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{Type: clusterv1.InUseCondition, Status: metav1.ConditionTrue, Reason: InUseReason,
		Message: listed(users), ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(s.Clock.Now())})
}

// usedBy finds the cluster that an object of ours has objects on.
func usedBy(_ context.Context, o client.Object) []crreconcile.Request {
	namespace, name, ok := target.ParseClusterID(placeOf(o))
	if !ok {
		return nil
	}
	return []crreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// placed lets the changes through with which somebody begins or ceases to use a cluster.
var placed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return placeOf(e.ObjectOld) != placeOf(e.ObjectNew) }}
