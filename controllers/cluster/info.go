package cluster

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/stacks/state"
)

// known is what is known of a cluster before it is asked.
type known struct {
	access *kubeconfig.Access
	facts  *clusterv1.ClusterFacts
	// secret and key of a kubeconfig that somebody else wrote; empty: it is to be written.
	secret, key string
}

// memo is what was known last, and what it was read from.
type memo struct {
	from string
	known
}

// know finds out how a cluster is reached.
func (s *Steps) know(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (known, error) {
	if obj.Spec.ImportRef != nil {
		return s.fromImport(ctx, obj, c)
	}
	obj.Status.Import, obj.Status.Store, obj.Status.Key = "", "", ""
	ref := obj.Spec.KubeConfigRef
	version := s.version(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name})
	return s.recall(obj, version, []any{ref.Name, ref.Key, ref.Context}, func() (known, error) { return s.fromSecret(ctx, obj, c) })
}

// recall reads again only what has changed since it was read: another version of the object
// that it is in, or something else of it. Without a version it is always read.
func (s *Steps) recall(obj *clusterv1.KsctlCluster, version string, what []any, read func() (known, error)) (known, error) {
	m, err := s.memos.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*memo, error) { return &memo{}, nil })
	if err != nil {
		return known{}, err
	}
	from := fmt.Sprintf("%q %q %q", s.account(obj), version, what)
	if version != "" && m.from == from {
		return m.known, nil
	}
	k, err := read()
	if err != nil {
		m.from = ""
		return known{}, err
	}
	m.from, m.known = from, k
	return k, nil
}

// fromSecret takes a kubeconfig as somebody wrote it.
func (s *Steps) fromSecret(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (known, error) {
	ref := obj.Spec.KubeConfigRef
	name := obj.Namespace + "/" + ref.Name
	var secret corev1.Secret
	found, err := engine.Read(ctx, c, secrets, obj.Namespace, ref.Name, &secret)
	if err != nil {
		return known{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if !found {
		return known{}, reconcile.Fail(KubeConfigNotFoundReason, "spec.kubeConfigRef: Secret %s does not exist", name)
	}
	key, data := kubeconfig.FromSecret(secret.Data, ref.Key)
	if data == nil {
		return known{}, reconcile.Fail(KubeConfigNotFoundReason, "spec.kubeConfigRef: Secret %s has no key %s", name, key)
	}
	access, err := s.read(data, ref.Context)
	if err != nil {
		return known{}, reconcile.Fail(KubeConfigRefusedReason, "Secret %s, key %s: %w", name, key, err)
	}
	return known{access: access, secret: ref.Name, key: key}, nil
}

func (s *Steps) read(data []byte, context string) (*kubeconfig.Access, error) {
	return kubeconfig.Read(data, kubeconfig.Options{Context: context, AllowInsecure: s.AllowInsecure})
}

// fromImport takes the kubeconfig and the facts of an imported state, as ksctl's store has it now.
func (s *Steps) fromImport(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (known, error) {
	ref := obj.Spec.ImportRef
	imp := &v1alpha1.ImportState{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}, imp)
	// An import may go and leave what it brought.
	store, key := obj.Status.Store, obj.Status.Key
	switch {
	case apierrors.IsNotFound(err) && (store == "" || obj.Status.Import != ref.Name || ref.Key != "" && ref.Key != key):
		return known{}, reconcile.Fail(ImportNotFoundReason, "spec.importRef: ImportState %s/%s does not exist", obj.Namespace, ref.Name)
	case apierrors.IsNotFound(err):
	case err != nil:
		return known{}, err
	case imp.Status.Agent != "":
		return known{}, reconcile.Fail(ClusterNotImportedReason, "ImportState %s sends to an agent, whose store can't be read: set spec.kubeConfigRef instead of spec.importRef", ref.Name)
	default:
		if store = imp.Status.Store; store == "" {
			return known{}, reconcile.Wait(ClusterNotImportedReason, "ImportState %s has imported no cluster yet", ref.Name)
		}
		if key, err = keyOf(ref, imp); err != nil {
			return known{}, err
		}
	}
	obj.Status.Import, obj.Status.Store, obj.Status.Key = ref.Name, store, key
	version := s.storeVersion(ctx, store)
	return s.recall(obj, version, []any{store, key}, func() (known, error) { return s.fromStore(ctx, obj, c, version) })
}

// fromStore takes what ksctl's store has of a cluster.
func (s *Steps) fromStore(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface, version string) (known, error) {
	store, key := obj.Status.Store, obj.Status.Key
	states, err := s.states(ctx, obj, c, version)
	if err != nil {
		return known{}, err
	}
	data := states[key]
	if data == nil {
		return known{}, reconcile.Wait(ClusterNotImportedReason, "ksctl's store in namespace %s has no state of %s", store, key)
	}
	file, err := state.Parse(key, data)
	if err != nil || len(file.Clusters) != 1 {
		return known{}, reconcile.Fail(ClusterNotImportedReason, "ksctl's store in namespace %s: %s is no state of a cluster", store, key)
	}
	doc := file.Clusters[0]
	if doc.ID.Key() != key {
		return known{}, reconcile.Fail(ClusterNotImportedReason, "ksctl's store in namespace %s: under %s stands the state of another cluster", store, key)
	}
	config := doc.KubeConfig()
	if config == "" {
		return known{}, reconcile.Wait(KubeConfigNotFoundReason, "the state of %s has no kubeconfig: ksctl has not finished making the cluster", key)
	}
	access, err := s.read([]byte(config), doc.Context)
	if err != nil {
		return known{}, reconcile.Fail(KubeConfigRefusedReason, "state of %s: %w", key, err)
	}
	return known{access: access, facts: factsOf(doc)}, nil
}

// keyOf finds the cluster that is meant among those of an import.
func keyOf(ref *clusterv1.ClusterImport, imp *v1alpha1.ImportState) (string, error) {
	rows := imp.Status.Clusters
	if len(rows) == 0 {
		return "", reconcile.Wait(ClusterNotImportedReason, "ImportState %s has imported no cluster yet", ref.Name)
	}
	if ref.Key == "" && len(rows) > 1 {
		return "", reconcile.Fail(ClusterNotImportedReason, "spec.importRef: ImportState %s has %d clusters: set key to that of one of them, such as %s", ref.Name, len(rows), rows[0].Key)
	}
	want := cmp.Or(ref.Key, rows[0].Key)
	for _, row := range rows {
		if row.Key == want {
			return want, nil
		}
	}
	return "", reconcile.Wait(ClusterNotImportedReason, "ImportState %s has no cluster %s", ref.Name, want)
}

// storeVersion is the version of a store as the cache has it; "" if it has none.
func (s *Steps) storeVersion(ctx context.Context, namespace string) string {
	meta := reconcile.Metadata("", "ConfigMap")
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: state.StoreConfigMap}, meta); err != nil {
		return "" // the cache may not hold that namespace, or only some ConfigMaps
	}
	return meta.ResourceVersion
}

// states are those of a store, read with the rights of the cluster's account, once for all
// clusters of that account.
func (s *Steps) states(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface, version string) (map[string][]byte, error) {
	namespace := obj.Status.Store
	return s.stores.read(storeKey{account: s.account(obj), namespace: namespace}, version, func() (map[string][]byte, error) {
		var store corev1.ConfigMap
		found, err := engine.Read(ctx, c, configMaps, namespace, state.StoreConfigMap, &store)
		if err != nil {
			return nil, fmt.Errorf("reading ksctl's store: %w", err)
		}
		if !found {
			return nil, reconcile.Wait(ClusterNotImportedReason, "there is no ksctl store in namespace %s", namespace)
		}
		return store.BinaryData, nil
	})
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)
