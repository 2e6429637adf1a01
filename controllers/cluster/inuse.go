package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// clusterIndex indexes installs, removes and autoscalers by the cluster that their objects are on.
const clusterIndex = ".status.cluster"

// clusterOf returns the ID of the remote cluster that an install, a remove or an autoscaler has
// objects on, without the key in a Secret; "" if it has none.
func clusterOf(o client.Object) string {
	var id string
	switch o := o.(type) {
	case *appsv1.KsctlInstall:
		id = o.Status.Cluster
	case *appsv1.KsctlRemove:
		if o.Status.Removed != nil { // nil: the remove has not started
			id = o.Status.Cluster
		}
	case *clusterv1.KsctlAutoScaler:
		if len(o.Status.Pools) > 0 { // the autoscaler has marked nodes
			id = target.ClusterID(o.Namespace, o.Spec.ClusterRef.Name)
		}
	}
	if namespace, secret, ok := target.ParseSecretID(id); ok {
		return target.SecretID(namespace, secret)
	}
	return id
}

func indexCluster(o client.Object) []string {
	if id := clusterOf(o); id != "" {
		return []string{id}
	}
	return nil
}

// cachedUsers returns the users of a cluster from the cache.
func (s *Steps) cachedUsers(ctx context.Context, obj *clusterv1.KsctlCluster) ([]appsv1.WaitReference, error) {
	return cachedUsers(ctx, s.Client, target.ClusterID(obj.Namespace, obj.Name))
}

func cachedUsers(ctx context.Context, cache client.Reader, cluster string) ([]appsv1.WaitReference, error) {
	return listUsers(ctx, cache, cluster, client.MatchingFields{clusterIndex: cluster}, client.UnsafeDisableDeepCopy)
}

// listUsers lists the users of a cluster: the installs, removes and autoscalers that have objects
// on it.
func listUsers(ctx context.Context, reader client.Reader, cluster string,
	opts ...client.ListOption) ([]appsv1.WaitReference, error) {
	var out []appsv1.WaitReference
	for kind, list := range map[string]client.ObjectList{"KsctlInstall": &appsv1.KsctlInstallList{},
		"KsctlRemove": &appsv1.KsctlRemoveList{}, "KsctlAutoScaler": &clusterv1.KsctlAutoScalerList{}} {
		err := reader.List(ctx, list, opts...)
		if err == nil {
			err = apimeta.EachListItem(list, func(item runtime.Object) error {
				if o := item.(client.Object); clusterOf(o) == cluster {
					out = append(out,
						appsv1.WaitReference{Type: appsv1.WaitInUse, Kind: kind, Namespace: o.GetNamespace(),
							Name: o.GetName()})
				}
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("listing the users of the cluster: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b appsv1.WaitReference) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// joinUsers joins the names of users for a message.
func joinUsers(users []appsv1.WaitReference) string {
	var names []string
	for _, u := range users {
		names = append(names, u.String())
	}
	return reconcile.JoinNames(names)
}

// reportUsers sets or removes the condition InUse.
func (s *Steps) reportUsers(obj *clusterv1.KsctlCluster, users []appsv1.WaitReference) {
	if len(users) == 0 {
		apimeta.RemoveStatusCondition(&obj.Status.Conditions, clusterv1.InUseCondition)
		return
	}
	apimeta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{Type: clusterv1.InUseCondition,
		Status: metav1.ConditionTrue, Reason: clusterv1.InUseReason,
		Message: joinUsers(users), ObservedGeneration: obj.Generation,
		LastTransitionTime: metav1.NewTime(s.Clock.Now())})
}

// clusterRequests returns the request for the cluster that an install, a remove or an autoscaler
// has objects on.
func clusterRequests(_ context.Context, o client.Object) []crreconcile.Request {
	namespace, name, ok := target.ParseClusterID(clusterOf(o))
	if !ok {
		return nil
	}
	return []crreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// clusterChanged accepts updates with which an object starts or stops using a cluster.
var clusterChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return clusterOf(e.ObjectOld) != clusterOf(e.ObjectNew)
}}
