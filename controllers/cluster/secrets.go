package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// publish writes the desired Secrets, and deletes those that are no longer desired. The status
// lists their names before they are written, so that none is orphaned.
func (s *Steps) publish(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface, k clusterInfo, labels map[string]string) error {
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
func (s *Steps) writeSecret(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlCluster], c dynamic.Interface, w desiredSecret, records map[types.NamespacedName]secretRecord) error {
	hash, err := w.hash()
	if err != nil {
		return err
	}
	if last := records[w.name]; last.hash == hash && last.version != "" && s.cachedVersion(ctx, "Secret", w.name.Namespace, w.name.Name) == last.version {
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

// cachedVersion returns the resourceVersion of a Secret or a ConfigMap in the cache; "" if it is not
// cached: the cache may be restricted to other namespaces, or to some ConfigMaps. The caller then
// reads the object from the API server.
func (s *Steps) cachedVersion(ctx context.Context, kind, namespace, name string) string {
	meta := reconcile.PartialMetadata("", kind)
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, meta); err != nil {
		return ""
	}
	return meta.ResourceVersion
}

// deleteStaleSecrets deletes the Secrets that were written before and are not in the list. It keeps
// the Secret with the user's own kubeconfig.
func (s *Steps) deleteStaleSecrets(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface, list []desiredSecret, userSecret string) error {
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
