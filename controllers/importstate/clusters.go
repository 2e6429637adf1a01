package importstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
)

// CreatedByAnnotation is set on each KsctlCluster that an ImportState creates. Its value is the
// name of the ImportState. The spec of the KsctlCluster is never changed afterwards: it belongs to
// its users.
const CreatedByAnnotation = "storage.ksctl.com/import"

// errNotInCache reports that a KsctlCluster exists, but is not in the cache yet.
var errNotInCache = errors.New("already exists, but is not in the cache yet")

// keepHint ends the messages about a deletion that is blocked.
const keepHint = "; to keep the imported states, set spec.deletionPolicy to Keep"

var clusterGVR = clusterv1.GroupVersion.WithResource("ksctlclusters")

// createClusters creates a KsctlCluster for each imported cluster that never had one.
func (s *Steps) createClusters(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState],
	c dynamic.Interface) error {
	obj := req.Object
	if obj.Spec.Publish == nil || !obj.Spec.Publish.KubeConfig {
		return nil
	}
	var list clusterv1.KsctlClusterList
	if err := s.Client.List(ctx, &list, client.InNamespace(obj.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i, name := range clustersToCreate(obj.Name, obj.Status.Clusters, list.Items) {
		row := &obj.Status.Clusters[i]
		if name == "" {
			req.Event(corev1.EventTypeWarning, "ClusterCreationFailed",
				fmt.Sprintf("spec.publish: cannot create a KsctlCluster for %s: its names are in use; create one "+
					"with spec.importRef {name: %s, key: %s}", row.Key, obj.Name, row.Key))
			continue
		}
		newCluster, err := s.newCluster(obj, name, row.Key)
		if err != nil {
			return err
		}
		_, err = c.Resource(clusterGVR).Namespace(obj.Namespace).
			Create(ctx, newCluster, metav1.CreateOptions{FieldManager: live.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("spec.publish: KsctlCluster %s/%s: %w", obj.Namespace, name, errNotInCache)
		}
		if err != nil {
			return fmt.Errorf("spec.publish: creating KsctlCluster %s/%s: %w", obj.Namespace, name, err)
		}
		row.Cluster = name
		req.Event(corev1.EventTypeNormal, "ClusterCreated",
			fmt.Sprintf("created KsctlCluster %s for %s", name, row.Key))
	}
	return nil
}

// newCluster returns the KsctlCluster of an imported cluster.
func (s *Steps) newCluster(obj *v1alpha1.ImportState, name, key string) (*unstructured.Unstructured, error) {
	cluster := &clusterv1.KsctlCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.KsctlClusterKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: name,
			Annotations: map[string]string{CreatedByAnnotation: obj.Name}, Labels: map[string]string{}},
		Spec: clusterv1.KsctlClusterSpec{Schedule: appsv1.Schedule{Interval: obj.Spec.Interval},
			ServiceAccountName: obj.Spec.ServiceAccountName,
			ImportRef:          &clusterv1.ClusterImport{Name: obj.Name, Key: key}},
	}
	if argo := obj.Spec.Publish.ArgoCD; argo != nil {
		cluster.Spec.ArgoCD = &clusterv1.ArgoCDCluster{Namespace: argo.Namespace}
	}
	// Only the labels that select the ImportState for this controller are copied: with the labels
	// of Argo CD or Flux, these would prune the KsctlCluster.
	if s.Selector != nil {
		requirements, _ := s.Selector.Requirements()
		for _, r := range requirements {
			if value, ok := obj.Labels[r.Key()]; ok {
				cluster.Labels[r.Key()] = value
			}
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// clustersToCreate returns the names of the KsctlClusters to create, by the index of their row. The
// name is that of the cluster, or if that is in use, one with cloud, type and region; "" if that is
// in use, too. For clusters with a KsctlCluster it sets the name of that in the row.
func clustersToCreate(importName string, rows []v1alpha1.ImportedCluster,
	existing []clusterv1.KsctlCluster) map[int]string {
	inUse, existingByKey := map[string]bool{}, map[string]string{}
	for i := range existing {
		inUse[existing[i].Name] = true
		ref := existing[i].Spec.ImportRef
		switch {
		case ref == nil || ref.Name != importName:
		case ref.Key != "":
			existingByKey[ref.Key] = existing[i].Name
		case len(rows) == 1:
			existingByKey[rows[0].Key] = existing[i].Name
		}
	}
	nameCount := map[string]int{}
	for _, row := range rows {
		nameCount[objectName(row.Name)]++
	}
	out := map[int]string{}
	for i := range rows {
		row := &rows[i]
		row.Cluster = cmp.Or(row.Cluster, existingByKey[row.Key])
		if !row.Ready || row.Action == v1alpha1.StateLeft || row.Action == v1alpha1.StateRemovedSince ||
			row.Cluster != "" {
			continue
		}
		name := objectName(row.Name)
		if name == "" || nameCount[name] > 1 || inUse[name] {
			name = objectName(strings.Join([]string{row.Cloud, row.Type, row.Name, row.Region}, "-"))
		}
		if inUse[name] {
			name = ""
		}
		inUse[name], out[i] = true, name
	}
	return out
}

// invalidNameChars matches characters that an object name must not contain.
var invalidNameChars = regexp.MustCompile(`[^a-z0-9]+`)

// objectName converts a text to an object name; "" if the text has no valid character.
func objectName(s string) string {
	s = strings.Trim(invalidNameChars.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.Trim(s[:min(len(s), 200)], "-")
}

// deleteClusters deletes the KsctlClusters that the ImportState created, if they still refer to it.
// It returns those that still exist: their users need the states in the store until they are
// deleted. In a terminating namespace, they are deleted with it.
func (s *Steps) deleteClusters(ctx context.Context, obj *v1alpha1.ImportState, c dynamic.Interface,
	terminating bool) (remaining []clusterv1.KsctlCluster, err error) {
	var list clusterv1.KsctlClusterList
	err = s.Client.List(ctx, &list, client.InNamespace(obj.Namespace), client.UnsafeDisableDeepCopy)
	if apimeta.IsNoMatchError(err) {
		return nil, nil // the CRD is not installed
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		cluster := &list.Items[i]
		if cluster.Annotations[CreatedByAnnotation] != obj.Name || cluster.Spec.ImportRef == nil ||
			cluster.Spec.ImportRef.Name != obj.Name {
			continue
		}
		remaining = append(remaining, *cluster)
		if cluster.DeletionTimestamp != nil || terminating {
			continue
		}
		err := c.Resource(clusterGVR).Namespace(obj.Namespace).
			Delete(ctx, cluster.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cluster.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("deleting KsctlCluster %s/%s, which this ImportState created: %w", obj.Namespace,
				cluster.Name, err)
		}
	}
	return remaining, nil
}

// waitForClusters returns the outcome while KsctlClusters are deleted. Their deletion does not
// enqueue the ImportState: unused clusters are checked again after a second, used ones at the retry
// interval.
func (s *Steps) waitForClusters(obj *v1alpha1.ImportState, remaining []clusterv1.KsctlCluster) reconcile.Outcome {
	out := reconcile.Waiting{Reason: appsv1.RemovingReason, RequeueAt: s.Clock.Now().Add(time.Second)}
	var names []string
	for i := range remaining {
		name := remaining[i].Name
		out.For = append(out.For, appsv1.WaitReference{Type: appsv1.WaitDeletion, Kind: clusterv1.KsctlClusterKind,
			Namespace: remaining[i].Namespace, Name: name})
		if condition := apimeta.FindStatusCondition(remaining[i].Status.Conditions,
			clusterv1.InUseCondition); condition != nil {
			name += " (in use by " + condition.Message + ")"
			out.Reason, out.RequeueAt = v1alpha1.InUseReason,
				s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	out.On = "the states contain the kubeconfigs of KsctlClusters that are not deleted yet: " +
		statestore.JoinMessages(names) + keepHint
	return out
}

// clusterRefs returns rows that contain only the keys and the names of the KsctlClusters.
func clusterRefs(rows []v1alpha1.ImportedCluster) (out []v1alpha1.ImportedCluster) {
	for _, row := range rows {
		out = append(out, v1alpha1.ImportedCluster{Key: row.Key, Cluster: row.Cluster})
	}
	return out
}
