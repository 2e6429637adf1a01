package cluster

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/stacks/state"
)

// clusterInfo is the kubeconfig of a cluster, and the facts from its state.
type clusterInfo struct {
	access *kubeconfig.Access
	facts  *clusterv1.ClusterFacts
	// secret and key locate a kubeconfig that a user provides; empty: the controller writes it.
	secret, key string
}

// info returns the kubeconfig and the facts of a cluster.
func (s *Steps) info(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (clusterInfo, error) {
	if obj.Spec.ImportRef != nil {
		return s.fromImport(ctx, obj, c)
	}
	obj.Status.Import, obj.Status.Store, obj.Status.Key = "", "", ""
	ref := obj.Spec.KubeConfigRef
	version := s.cachedVersion(ctx, "Secret", obj.Namespace, ref.Name)
	return s.cachedRead(obj, version, []any{ref.Name, ref.Key, ref.Context}, func() (clusterInfo, error) {
		return s.fromSecret(ctx, obj, c)
	})
}

// cachedRead calls read only if the account, the version of the source object or another input has
// changed since the last call. Without a version it always calls read.
func (s *Steps) cachedRead(obj *clusterv1.KsctlCluster, version string, inputs []any,
	read func() (clusterInfo, error)) (clusterInfo, error) {
	m, err := s.stateOf(obj)
	if err != nil {
		return clusterInfo{}, err
	}
	key := fmt.Sprintf("%q %q %q", s.accountOf(obj), version, inputs)
	if version != "" && m.infoKey == key {
		return m.info, nil
	}
	k, err := read()
	if err != nil {
		m.infoKey = ""
		return clusterInfo{}, err
	}
	m.infoKey, m.info = key, k
	return k, nil
}

// fromSecret reads the kubeconfig from the Secret of spec.kubeConfigRef.
func (s *Steps) fromSecret(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (clusterInfo, error) {
	ref := obj.Spec.KubeConfigRef
	name := obj.Namespace + "/" + ref.Name
	var secret corev1.Secret
	found, err := engine.GetInto(ctx, c, secretGVR, obj.Namespace, ref.Name, &secret)
	if err != nil {
		return clusterInfo{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if !found {
		return clusterInfo{},
			reconcile.NewTerminalError(clusterv1.KubeConfigNotFoundReason,
				"spec.kubeConfigRef: Secret %s does not exist", name)
	}
	key, data := kubeconfig.FromSecret(secret.Data, ref.Key)
	if data == nil {
		return clusterInfo{},
			reconcile.NewTerminalError(clusterv1.KubeConfigNotFoundReason,
				"spec.kubeConfigRef: Secret %s has no key %s", name, key)
	}
	access, err := s.readKubeConfig(data, ref.Context)
	if err != nil {
		return clusterInfo{}, reconcile.NewTerminalError(appsv1.KubeConfigRefusedReason, "Secret %s, key %s: %w", name,
			key, err)
	}
	return clusterInfo{access: access, secret: ref.Name, key: key}, nil
}

func (s *Steps) readKubeConfig(data []byte, context string) (*kubeconfig.Access, error) {
	return kubeconfig.Read(data, kubeconfig.Options{Context: context, AllowInsecure: s.AllowInsecure})
}

// fromImport reads the kubeconfig and the facts from the current state in the ksctl store.
func (s *Steps) fromImport(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface) (clusterInfo, error) {
	ref := obj.Spec.ImportRef
	imp := &v1alpha1.ImportState{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}, imp)
	// A deleted ImportState may leave the imported state in the store.
	store, key := obj.Status.Store, obj.Status.Key
	switch {
	case apierrors.IsNotFound(err) && (store == "" || obj.Status.Import != ref.Name || ref.Key != "" && ref.Key != key):
		return clusterInfo{}, reconcile.NewTerminalError(clusterv1.ImportNotFoundReason,
			"spec.importRef: ImportState %s/%s does not exist", obj.Namespace, ref.Name)
	case apierrors.IsNotFound(err):
	case err != nil:
		return clusterInfo{}, err
	case imp.Status.Agent != "":
		return clusterInfo{}, reconcile.NewTerminalError(clusterv1.ClusterNotImportedReason,
			"ImportState %s sends states to an agent, whose store is not readable: set spec.kubeConfigRef instead of "+
				"spec.importRef", ref.Name)
	default:
		if store = imp.Status.Store; store == "" {
			return clusterInfo{}, reconcile.NewWaitingError(clusterv1.ClusterNotImportedReason, waitForImport(imp),
				"ImportState %s has not imported a cluster yet", ref.Name)
		}
		if key, err = selectKey(ref, imp); err != nil {
			return clusterInfo{}, err
		}
	}
	obj.Status.Import, obj.Status.Store, obj.Status.Key = ref.Name, store, key
	version := s.cachedVersion(ctx, "ConfigMap", store, state.StoreConfigMap)
	return s.cachedRead(obj, version, []any{store, key}, func() (clusterInfo, error) {
		return s.fromStore(ctx, obj, c, version)
	})
}

// fromStore reads the state of a cluster from the ksctl store.
func (s *Steps) fromStore(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface,
	version string) (clusterInfo, error) {
	store, key := obj.Status.Store, obj.Status.Key
	states, err := s.states(ctx, obj, c, version)
	if err != nil {
		return clusterInfo{}, err
	}
	data := states[key]
	if data == nil {
		return clusterInfo{}, reconcile.NewWaitingError(clusterv1.ClusterNotImportedReason, waitForStore(store),
			"the ksctl store in namespace %s does not contain the state of %s", store, key)
	}
	file, err := state.Parse(key, data)
	if err != nil || len(file.Clusters) != 1 {
		return clusterInfo{}, reconcile.NewTerminalError(clusterv1.ClusterNotImportedReason,
			"the ksctl store in namespace %s: %s is not the state of a cluster", store, key)
	}
	doc := file.Clusters[0]
	if doc.ID.Key() != key {
		return clusterInfo{}, reconcile.NewTerminalError(clusterv1.ClusterNotImportedReason,
			"the ksctl store in namespace %s: the key %s contains the state of another cluster", store, key)
	}
	config := doc.KubeConfig()
	if config == "" {
		return clusterInfo{}, reconcile.NewWaitingError(clusterv1.KubeConfigNotFoundReason, waitForStore(store),
			"the state of %s has no kubeconfig: ksctl has not finished creating the cluster", key)
	}
	access, err := s.readKubeConfig([]byte(config), doc.Context)
	if err != nil {
		return clusterInfo{}, reconcile.NewTerminalError(appsv1.KubeConfigRefusedReason, "state of %s: %w", key, err)
	}
	return clusterInfo{access: access, facts: factsOf(doc)}, nil
}

// selectKey returns the key of the cluster that ref selects among those of an ImportState.
func selectKey(ref *clusterv1.ClusterImport, imp *v1alpha1.ImportState) (string, error) {
	clusters := imp.Status.Clusters
	if len(clusters) == 0 {
		return "", reconcile.NewWaitingError(clusterv1.ClusterNotImportedReason, waitForImport(imp),
			"ImportState %s has not imported a cluster yet", ref.Name)
	}
	if ref.Key == "" && len(clusters) > 1 {
		return "", reconcile.NewTerminalError(clusterv1.ClusterNotImportedReason,
			"spec.importRef: ImportState %s has %d clusters: set key to one of their keys, such as %s", ref.Name,
			len(clusters), clusters[0].Key)
	}
	want := cmp.Or(ref.Key, clusters[0].Key)
	for _, cluster := range clusters {
		if cluster.Key == want {
			return want, nil
		}
	}
	return "", reconcile.NewWaitingError(clusterv1.ClusterNotImportedReason, waitForImport(imp),
		"ImportState %s has no cluster %s", ref.Name, want)
}

// states returns the states of a store. It reads them with the permissions of the cluster's service
// account, once for all clusters with that account.
func (s *Steps) states(ctx context.Context, obj *clusterv1.KsctlCluster, c dynamic.Interface,
	version string) (map[string][]byte, error) {
	namespace := obj.Status.Store
	return s.stores.read(storeKey{account: s.accountOf(obj),
		namespace: namespace}, version, func() (map[string][]byte, error) {
		var store corev1.ConfigMap
		found, err := engine.GetInto(ctx, c, configMapGVR, namespace, state.StoreConfigMap, &store)
		if err != nil {
			return nil, fmt.Errorf("reading the ksctl store: %w", err)
		}
		if !found {
			return nil, reconcile.NewWaitingError(clusterv1.ClusterNotImportedReason, waitForStore(namespace),
				"namespace %s has no ksctl store", namespace)
		}
		return store.BinaryData, nil
	})
}

var (
	configMapGVR = corev1.SchemeGroupVersion.WithResource("configmaps")
	secretGVR    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// waitForImport returns the wait for an ImportState.
func waitForImport(imp *v1alpha1.ImportState) appsv1.WaitReference {
	return appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: v1alpha1.ImportStateKind, Namespace: imp.Namespace,
		Name: imp.Name}
}

// waitForStore returns the wait for a ksctl store.
func waitForStore(namespace string) appsv1.WaitReference {
	return appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: "ConfigMap", Namespace: namespace,
		Name: state.StoreConfigMap}
}
