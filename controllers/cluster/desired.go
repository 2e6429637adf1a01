package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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

// OfAnnotation is on each Secret that is written for a cluster: <namespace>/<name> of the
// KsctlCluster.
const OfAnnotation = "cluster.ksctl.com/of"

// secretSuffix and secretKey are those of Cluster API, which Flux knows, too.
// https://cluster-api.sigs.k8s.io/developer/core/controllers/cluster#kubeconfig-secrets
const (
	secretSuffix = "-kubeconfig"
	secretKey    = "value"
)

// wanted is a Secret as it is to be.
type wanted struct {
	name   types.NamespacedName
	labels map[string]string
	data   map[string][]byte
	// argocd is true for the one that Argo CD reads.
	argocd bool
}

// wantedSecrets are those of a cluster.
func wantedSecrets(obj *clusterv1.KsctlCluster, k known, labels map[string]string) ([]wanted, error) {
	var out []wanted
	labels = maps.Clone(labels)
	labels[clusterv1.ClusterLabel] = labelValue(obj.Name)
	if k.secret == "" {
		config, err := k.access.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out, wanted{name: types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name + secretSuffix}, labels: labels, data: map[string][]byte{secretKey: config}})
	}
	if argo := obj.Spec.ArgoCD; argo != nil {
		name := argo.Name
		if name == "" {
			name = obj.Namespace + "." + obj.Name
		}
		data, err := k.access.ArgoCD(name)
		if err != nil {
			return nil, err
		}
		if argo.Project != "" {
			data["project"] = []byte(argo.Project)
		}
		l := maps.Clone(labels)
		l[kubeconfig.ArgoCDLabel] = kubeconfig.ArgoCDLabelValue
		out = append(out, wanted{name: argoCDSecret(obj, argo.Namespace), labels: l, data: data, argocd: true})
	}
	return out, nil
}

// argoCDSecret is the Secret that Argo CD knows a cluster by.
func argoCDSecret(obj *clusterv1.KsctlCluster, namespace string) types.NamespacedName {
	name := "cluster-" + obj.Namespace + "." + obj.Name // a namespace has no dot
	if len(name) > 253 {
		name = name[:200] + "-" + short(name)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// labelValue is a name that fits a label.
func labelValue(name string) string {
	if len(name) <= 63 {
		return name
	}
	return name[:40] + "-" + short(name)
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func of(obj *clusterv1.KsctlCluster) string { return obj.Namespace + "/" + obj.Name }

// done is what was done to a Secret, and the resourceVersion that it has since.
type done struct{ did, version string }

// What is done to a Secret.
const (
	created = "created"
	changed = "changed"
)

// ensure makes a Secret as it is wanted.
func ensure(ctx context.Context, c dynamic.Interface, w wanted, owner string) (done, error) {
	var have corev1.Secret
	found, err := engine.Read(ctx, c, secrets, w.name.Namespace, w.name.Name, &have)
	switch {
	case err != nil:
		return done{}, fmt.Errorf("reading Secret %s: %w", w.name, err)
	case !found:
		return create(ctx, c, w, owner)
	case have.Annotations[OfAnnotation] != owner:
		return done{}, reconcile.Fail(SecretTakenReason, "Secret %s exists, and is not this cluster's: delete it, or rename the KsctlCluster", w.name)
	case fits(&have, w):
		return done{version: have.ResourceVersion}, nil
	}
	body, err := json.Marshal(change(&have, w))
	if err != nil {
		return done{}, err
	}
	u, err := c.Resource(secrets).Namespace(w.name.Namespace).Patch(ctx, w.name.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: live.FieldManager})
	if err != nil {
		return done{}, fmt.Errorf("changing Secret %s: %w", w.name, err)
	}
	return done{changed, u.GetResourceVersion()}, nil
}

func create(ctx context.Context, c dynamic.Interface, w wanted, owner string) (done, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name.Name, Namespace: w.name.Namespace, Labels: w.labels, Annotations: map[string]string{OfAnnotation: owner}},
		Type:       corev1.SecretTypeOpaque, Data: w.data,
	})
	if err != nil {
		return done{}, err
	}
	u, err := c.Resource(secrets).Namespace(w.name.Namespace).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: live.FieldManager})
	if err != nil {
		return done{}, fmt.Errorf("creating Secret %s: %w", w.name, err)
	}
	return done{created, u.GetResourceVersion()}, nil
}

// sum tells what is wanted apart from what was wanted before.
func (w *wanted) sum() ([sha256.Size]byte, error) {
	body, err := json.Marshal([]any{w.labels, w.data})
	return sha256.Sum256(body), err
}

// fits is true when a Secret has all that is wanted of it, and no other data.
func fits(have *corev1.Secret, w wanted) bool {
	for label, value := range w.labels {
		if have.Labels[label] != value {
			return false
		}
	}
	for _, label := range selecting {
		if _, there := have.Labels[label]; there && w.labels[label] == "" {
			return false
		}
	}
	return maps.EqualFunc(have.Data, w.data, bytes.Equal)
}

// change is the merge patch that makes a Secret fit, if nobody changes it meanwhile.
func change(have *corev1.Secret, w wanted) map[string]any {
	data := map[string]any{}
	for key := range have.Data {
		data[key] = nil
	}
	for key, value := range w.data {
		data[key] = value
	}
	labels := map[string]any{}
	for _, label := range selecting {
		labels[label] = nil
	}
	for label, value := range w.labels {
		labels[label] = value
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": have.ResourceVersion, "labels": labels}, "data": data}
}

// allowed is nil when Argo CD's Secrets may be written into a namespace.
func (s *Steps) allowed(argo *clusterv1.ArgoCDCluster) error {
	if argo == nil || slices.Contains(s.ArgoCDNamespaces, argo.Namespace) {
		return nil
	}
	return reconcile.Fail(ArgoCDNotAllowedReason, "spec.argocd.namespace: the controller's --argocd-namespaces does not list %s", argo.Namespace)
}
