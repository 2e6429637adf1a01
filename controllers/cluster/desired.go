package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

// OwnerAnnotation is set on each Secret that is written for a cluster. Its value is the
// <namespace>/<name> of the KsctlCluster.
const OwnerAnnotation = "cluster.ksctl.com/of"

// secretSuffix and secretKey are those of Cluster API, which Flux supports, too.
// https://cluster-api.sigs.k8s.io/developer/core/controllers/cluster#kubeconfig-secrets
const (
	secretSuffix = "-kubeconfig"
	secretKey    = "value"
)

// desiredSecret is the desired state of a Secret.
type desiredSecret struct {
	name   types.NamespacedName
	labels map[string]string
	data   map[string][]byte
}

// desiredSecrets returns the desired Secrets of a cluster.
func desiredSecrets(obj *clusterv1.KsctlCluster, k clusterInfo, labels map[string]string) ([]desiredSecret, error) {
	var out []desiredSecret
	labels = maps.Clone(labels)
	labels[clusterv1.ClusterLabel] = labelValue(obj.Name)
	if k.secret == "" {
		config, err := k.access.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out,
			desiredSecret{name: types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name + secretSuffix},
				labels: labels, data: map[string][]byte{secretKey: config}})
	}
	if argo := obj.Spec.ArgoCD; argo != nil {
		data, err := k.access.ArgoCDSecretData(cmp.Or(argo.Name, obj.Namespace+"."+obj.Name))
		if err != nil {
			return nil, err
		}
		if argo.Project != "" {
			data["project"] = []byte(argo.Project)
		}
		l := maps.Clone(labels)
		l[kubeconfig.ArgoCDLabel] = kubeconfig.ArgoCDLabelValue
		out = append(out, desiredSecret{name: argoCDSecret(obj, argo.Namespace), labels: l, data: data})
	}
	return out, nil
}

// argoCDSecret returns the name of the cluster Secret of Argo CD.
func argoCDSecret(obj *clusterv1.KsctlCluster, namespace string) types.NamespacedName {
	name := "cluster-" + obj.Namespace + "." + obj.Name // unique, because a namespace contains no dot
	if len(name) > 253 {
		name = name[:200] + "-" + shortHash(name)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// labelValue returns a name as a label value: names over 63 bytes are shortened and get a hash.
func labelValue(name string) string {
	if len(name) <= 63 {
		return name
	}
	return name[:40] + "-" + shortHash(name)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func ownerOf(obj *clusterv1.KsctlCluster) string { return obj.Namespace + "/" + obj.Name }

// writeResult is the action on a Secret ("created", "changed", or "" if it was up to date), and its
// resourceVersion afterwards.
type writeResult struct{ action, version string }

// ensureSecret creates or patches a Secret, if it differs from its desired state.
func ensureSecret(ctx context.Context, c dynamic.Interface, w desiredSecret, owner string) (writeResult, error) {
	var have corev1.Secret
	found, err := engine.GetInto(ctx, c, secretGVR, w.name.Namespace, w.name.Name, &have)
	switch {
	case err != nil:
		return writeResult{}, fmt.Errorf("reading Secret %s: %w", w.name, err)
	case !found:
		return createSecret(ctx, c, w, owner)
	case have.Annotations[OwnerAnnotation] != owner:
		return writeResult{}, reconcile.NewTerminalError(clusterv1.SecretConflictReason,
			"Secret %s exists and belongs to another owner: delete it, or rename the KsctlCluster", w.name)
	case upToDate(&have, w):
		return writeResult{version: have.ResourceVersion}, nil
	}
	body, err := json.Marshal(mergePatch(&have, w))
	if err != nil {
		return writeResult{}, err
	}
	u, err := c.Resource(secretGVR).Namespace(w.name.Namespace).Patch(ctx, w.name.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: live.FieldManager})
	if err != nil {
		return writeResult{}, fmt.Errorf("changing Secret %s: %w", w.name, err)
	}
	return writeResult{"changed", u.GetResourceVersion()}, nil
}

func createSecret(ctx context.Context, c dynamic.Interface, w desiredSecret, owner string) (writeResult, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name.Name, Namespace: w.name.Namespace, Labels: w.labels,
			Annotations: map[string]string{OwnerAnnotation: owner}},
		Type: corev1.SecretTypeOpaque, Data: w.data,
	})
	if err != nil {
		return writeResult{}, err
	}
	u, err := c.Resource(secretGVR).Namespace(w.name.Namespace).Create(ctx, &unstructured.Unstructured{Object: object},
		metav1.CreateOptions{FieldManager: live.FieldManager})
	if err != nil {
		return writeResult{}, fmt.Errorf("creating Secret %s: %w", w.name, err)
	}
	return writeResult{"created", u.GetResourceVersion()}, nil
}

// hash returns a hash of the desired labels and data.
func (w *desiredSecret) hash() ([sha256.Size]byte, error) {
	body, err := json.Marshal([]any{w.labels, w.data})
	return sha256.Sum256(body), err
}

// upToDate reports whether a Secret has the desired labels and exactly the desired data.
func upToDate(have *corev1.Secret, w desiredSecret) bool {
	for label, value := range w.labels {
		if have.Labels[label] != value {
			return false
		}
	}
	for _, label := range selectorLabels {
		if _, there := have.Labels[label]; there && w.labels[label] == "" {
			return false
		}
	}
	return maps.EqualFunc(have.Data, w.data, bytes.Equal)
}

// mergePatch returns the merge patch that brings a Secret to its desired state. It fails with a
// conflict if the Secret changes before.
func mergePatch(have *corev1.Secret, w desiredSecret) map[string]any {
	data, labels := map[string]any{}, map[string]any{}
	for key := range have.Data {
		data[key] = nil
	}
	for key, value := range w.data {
		data[key] = value
	}
	for _, label := range selectorLabels {
		labels[label] = nil
	}
	for label, value := range w.labels {
		labels[label] = value
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": have.ResourceVersion, "labels": labels},
		"data": data}
}

// checkArgoCDNamespace returns an error if --argocd-namespaces does not list the namespace for the
// Secret of Argo CD.
func (s *Steps) checkArgoCDNamespace(argo *clusterv1.ArgoCDCluster) error {
	if argo == nil || slices.Contains(s.ArgoCDNamespaces, argo.Namespace) {
		return nil
	}
	return reconcile.NewTerminalError(clusterv1.ArgoCDNamespaceNotAllowedReason,
		"spec.argocd.namespace: the controller's --argocd-namespaces does not list %s", argo.Namespace)
}

// publish writes the desired Secrets, and deletes those that are no longer desired. The status
// lists their names before they are written, so that none is orphaned.
func (s *Steps) publish(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface,
	k clusterInfo, labels map[string]string) error {
	obj := req.Object
	list, err := desiredSecrets(obj, k, labels)
	if err != nil {
		return err
	}
	if err := s.deleteStaleSecrets(ctx, obj, c, list, k.secret); err != nil {
		return err
	}
	before := recordedSecrets(obj)
	reportSecrets(obj, k)
	if !slices.Equal(before, recordedSecrets(obj)) {
		if err := req.Persist(ctx, "recording the names of the Secrets"); err != nil {
			return err
		}
	}
	m, err := s.stateOf(obj)
	if err != nil {
		return err
	}
	for _, w := range list {
		if err := s.writeSecret(ctx, req, c, w, m.secrets); err != nil {
			return err
		}
	}
	return nil
}

// reportSecrets records the Secrets in the status.
func reportSecrets(obj *clusterv1.KsctlCluster, k clusterInfo) {
	st := &obj.Status
	st.KubeConfigSecret, st.KubeConfigKey, st.ArgoCDSecret, st.KubeConfigExpires = k.secret, k.key, "", nil
	if k.secret == "" {
		st.KubeConfigSecret, st.KubeConfigKey = obj.Name+secretSuffix, secretKey
	}
	if at := k.access.Expires; !at.IsZero() {
		st.KubeConfigExpires = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
	}
	if argo := obj.Spec.ArgoCD; argo != nil {
		st.ArgoCDSecret = argoCDSecret(obj, argo.Namespace).String()
	}
}

// writeSecret creates or updates one Secret, unless the cache shows that it is up to date.
func (s *Steps) writeSecret(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface,
	w desiredSecret, records map[types.NamespacedName]secretRecord) error {
	hash, err := w.hash()
	if err != nil {
		return err
	}
	if last := records[w.name]; last.hash == hash && last.version != "" &&
		s.cachedVersion(ctx, "Secret", w.name.Namespace, w.name.Name) == last.version {
		return nil
	}
	result, err := ensureSecret(ctx, c, w, ownerOf(req.Object))
	if err != nil {
		return err
	}
	records[w.name] = secretRecord{version: result.version, hash: hash}
	if result.action != "" {
		req.Event(corev1.EventTypeNormal, "KubeConfigWritten", fmt.Sprintf("%s Secret %s", result.action, w.name))
	}
	return nil
}

// cachedVersion returns the resourceVersion of a Secret or a ConfigMap in the cache; "" if it is
// not cached: the cache may be restricted to other namespaces, or to some ConfigMaps. The caller
// then reads the object from the API server.
func (s *Steps) cachedVersion(ctx context.Context, kind, namespace, name string) string {
	meta := reconcile.PartialMetadata("", kind)
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, meta); err != nil {
		return ""
	}
	return meta.ResourceVersion
}

// deleteStaleSecrets deletes the Secrets that were written before and are not in the list. It keeps
// the Secret with the user's own kubeconfig.
func (s *Steps) deleteStaleSecrets(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface,
	list []desiredSecret, userSecret string) error {
	for _, name := range recordedSecrets(obj) {
		keep := name.Namespace == obj.Namespace && name.Name == userSecret ||
			slices.ContainsFunc(list, func(w desiredSecret) bool { return w.name == name })
		if keep {
			continue
		}
		if err := engine.DeleteOwnedSecret(ctx, c, name, OwnerAnnotation, ownerOf(obj)); err != nil {
			return err
		}
	}
	return nil
}

// recordedSecrets returns the Secrets in the status: they were written, or were about to be.
func recordedSecrets(obj *clusterv1.KsctlCluster) []types.NamespacedName {
	var out []types.NamespacedName
	if name := obj.Status.KubeConfigSecret; name == obj.Name+secretSuffix {
		out = append(out, types.NamespacedName{Namespace: obj.Namespace, Name: name})
	}
	if name, ok := parseNamespacedName(obj.Status.ArgoCDSecret); ok {
		out = append(out, name)
	}
	return out
}

// parseNamespacedName parses <namespace>/<name>.
func parseNamespacedName(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
