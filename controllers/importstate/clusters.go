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

// MadeByAnnotation is on each KsctlCluster that an import has made: the import's name. What
// is in its spec is its users' from then on.
const MadeByAnnotation = "storage.ksctl.com/import"

// errBehind says that the cache does not have yet what was just made.
var errBehind = errors.New("somebody else has just made it")

// InUseReason says that a KsctlCluster that an import has made is in use, and goes before it.
const InUseReason = "InUse"

// orKeep says how to delete an import without what it has written.
const orKeep = "; or set spec.deletionPolicy to Keep, to leave what was imported"

var clusters = clusterv1.GroupVersion.WithResource("ksctlclusters")

// introduce makes a KsctlCluster for each imported cluster that never had one.
func (s *Steps) introduce(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], c dynamic.Interface) error {
	obj := req.Object
	if obj.Spec.Publish == nil || !obj.Spec.Publish.KubeConfig {
		return nil
	}
	var list clusterv1.KsctlClusterList
	if err := s.Client.List(ctx, &list, client.InNamespace(obj.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i, name := range newcomers(obj.Name, obj.Status.Clusters, list.Items) {
		row := &obj.Status.Clusters[i]
		if name == "" {
			req.Event(corev1.EventTypeWarning, "ClusterNotMade", fmt.Sprintf("spec.publish: no KsctlCluster is made for %s: its names are taken; commit one with spec.importRef {name: %s, key: %s}", row.Key, obj.Name, row.Key))
			continue
		}
		made, err := s.introduced(obj, name, row.Key)
		if err != nil {
			return err
		}
		_, err = c.Resource(clusters).Namespace(obj.Namespace).Create(ctx, made, metav1.CreateOptions{FieldManager: live.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("spec.publish: KsctlCluster %s/%s: %w", obj.Namespace, name, errBehind)
		}
		if err != nil {
			return fmt.Errorf("spec.publish: making KsctlCluster %s/%s: %w", obj.Namespace, name, err)
		}
		row.Cluster = name
		req.Event(corev1.EventTypeNormal, "ClusterMade", fmt.Sprintf("made KsctlCluster %s for %s", name, row.Key))
	}
	return nil
}

// introduced is the KsctlCluster of a cluster that was imported.
func (s *Steps) introduced(obj *v1alpha1.ImportState, name, key string) (*unstructured.Unstructured, error) {
	made := &clusterv1.KsctlCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "KsctlCluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: name, Annotations: map[string]string{MadeByAnnotation: obj.Name}, Labels: map[string]string{}},
		Spec: clusterv1.KsctlClusterSpec{Schedule: appsv1.Schedule{Interval: obj.Spec.Interval}, ServiceAccountName: obj.Spec.ServiceAccountName,
			ImportRef: &clusterv1.ClusterImport{Name: obj.Name, Key: key}},
	}
	if argo := obj.Spec.Publish.ArgoCD; argo != nil {
		made.Spec.ArgoCD = &clusterv1.ArgoCDCluster{Namespace: argo.Namespace}
	}
	// The labels by which the import is this process's, and no others: those of Argo CD or
	// Flux would have it pruned.
	if s.Selector != nil {
		requirements, _ := s.Selector.Requirements()
		for _, r := range requirements {
			if value, ok := obj.Labels[r.Key()]; ok {
				made.Labels[r.Key()] = value
			}
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// newcomers are the clusters of an import that a KsctlCluster is to be made for, by their
// index among its rows, with its name: their own, or with cloud, type and region where
// that is another's; "" where that is taken, too. Those that have one are noted in the rows.
func newcomers(imp string, rows []v1alpha1.ImportedCluster, there []clusterv1.KsctlCluster) map[int]string {
	taken, known := map[string]bool{}, map[string]string{}
	for i := range there {
		taken[there[i].Name] = true
		ref := there[i].Spec.ImportRef
		switch {
		case ref == nil || ref.Name != imp:
		case ref.Key != "":
			known[ref.Key] = there[i].Name
		case len(rows) == 1:
			known[rows[0].Key] = there[i].Name
		}
	}
	wished := map[string]int{}
	for _, row := range rows {
		wished[nameOf(row.Name)]++
	}
	out := map[int]string{}
	for i := range rows {
		row := &rows[i]
		row.Cluster = cmp.Or(row.Cluster, known[row.Key])
		if !row.Ready || row.Action == v1alpha1.StateLeft || row.Action == v1alpha1.StateRemovedSince || row.Cluster != "" {
			continue
		}
		name := nameOf(row.Name)
		if name == "" || wished[name] > 1 || taken[name] {
			name = nameOf(strings.Join([]string{row.Cloud, row.Type, row.Name, row.Region}, "-"))
		}
		if taken[name] {
			name = ""
		}
		taken[name], out[i] = true, name
	}
	return out
}

// improper is what no name of an object has.
var improper = regexp.MustCompile(`[^a-z0-9]+`)

// nameOf makes a name of an object of any text; "" if nothing of it can be in one.
func nameOf(s string) string {
	s = strings.Trim(improper.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.Trim(s[:min(len(s), 200)], "-")
}

// dismiss deletes the KsctlClusters that an import has made, if they are still of it. It returns
// those that are there yet: what uses them needs the states in the store to the end.
func (s *Steps) dismiss(ctx context.Context, obj *v1alpha1.ImportState, c dynamic.Interface) (left []clusterv1.KsctlCluster, err error) {
	var list clusterv1.KsctlClusterList
	err = s.Client.List(ctx, &list, client.InNamespace(obj.Namespace), client.UnsafeDisableDeepCopy)
	if apimeta.IsNoMatchError(err) {
		return nil, nil // there can be none
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		made := &list.Items[i]
		if made.Annotations[MadeByAnnotation] != obj.Name || made.Spec.ImportRef == nil || made.Spec.ImportRef.Name != obj.Name {
			continue
		}
		left = append(left, *made)
		if made.DeletionTimestamp != nil {
			continue
		}
		err := c.Resource(clusters).Namespace(obj.Namespace).Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("deleting KsctlCluster %s/%s, which this import made: %w", obj.Namespace, made.Name, err)
		}
	}
	return left, nil
}

// await waits for KsctlClusters to go. Nothing wakes the import then: those that nobody uses take
// a moment, and the others as long as their users.
func (s *Steps) await(obj *v1alpha1.ImportState, left []clusterv1.KsctlCluster) reconcile.Outcome {
	out := reconcile.Waiting{Reason: reconcile.RemovingReason, Until: s.Clock.Now().Add(time.Second)}
	var names []string
	for i := range left {
		name := left[i].Name
		if used := apimeta.FindStatusCondition(left[i].Status.Conditions, clusterv1.InUseCondition); used != nil {
			name += " (in use by " + used.Message + ")"
			out.Reason, out.Until = InUseReason, s.Clock.Now().Add(reconcile.RetryInterval(&obj.Spec.Schedule))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	out.On = "these KsctlClusters go first, and their kubeconfigs are in ksctl's store until then: " + statestore.Lines(names) + orKeep
	return out
}

// knownClusters are the lines of a status with nothing in them but which KsctlClusters there are.
func knownClusters(rows []v1alpha1.ImportedCluster) []v1alpha1.ImportedCluster {
	out := make([]v1alpha1.ImportedCluster, 0, len(rows))
	for _, row := range rows {
		out = append(out, v1alpha1.ImportedCluster{Key: row.Key, Cluster: row.Cluster})
	}
	return out
}
