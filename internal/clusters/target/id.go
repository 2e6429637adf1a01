package target

import (
	"cmp"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// secretPrefix is the prefix of the ID of a cluster that is given by a kubeconfig only.
const secretPrefix = "secret:"

// ID returns the ID of the cluster that the spec of an object in a namespace refers to.
func ID(namespace string, t *appsv1.TargetCluster) string {
	switch {
	case t.ClusterRef != nil:
		return ClusterID(cmp.Or(t.ClusterRef.Namespace, namespace), t.ClusterRef.Name)
	case t.KubeConfig != nil:
		ref := t.KubeConfig.SecretRef
		id := SecretID(namespace, ref.Name)
		if ref.Key != "" {
			id += ":" + ref.Key
		}
		return id
	}
	return plan.LocalCluster
}

// ClusterID returns the ID of a KsctlCluster. It is unique because a namespace contains no dot.
func ClusterID(namespace, name string) string { return namespace + "." + name }

// ParseClusterID is the inverse of ClusterID; ok is false for the ID of a kubeconfig.
func ParseClusterID(id string) (namespace, name string, ok bool) {
	if strings.HasPrefix(id, secretPrefix) {
		return "", "", false
	}
	return strings.Cut(id, ".")
}

// SecretID returns the ID, without key, of a cluster that is given by a Secret with its kubeconfig.
func SecretID(namespace, name string) string { return secretPrefix + ClusterID(namespace, name) }

// ParseSecretID returns the Secret of such an ID, with or without key; ok is false for the ID of a
// KsctlCluster.
func ParseSecretID(id string) (namespace, name string, ok bool) {
	secret, ok := strings.CutPrefix(id, secretPrefix)
	if !ok {
		return "", "", false
	}
	secret, _, _ = strings.Cut(secret, ":")
	return strings.Cut(secret, ".")
}

// DisplayName returns the name of a cluster for messages.
func DisplayName(id string) string {
	if id == plan.LocalCluster {
		return "this cluster"
	}
	kind, rest := "KsctlCluster ", id
	if name, ok := strings.CutPrefix(id, secretPrefix); ok {
		kind, rest = "the cluster of Secret ", name
	}
	namespace, name, _ := strings.Cut(rest, ".")
	name, key, keyed := strings.Cut(name, ":")
	if keyed {
		key = ", key " + key
	}
	return kind + namespace + "/" + name + key
}

// InstallCluster returns the ID of the cluster with the objects of an install, or of the one that
// will have them.
func InstallCluster(in *appsv1.KsctlInstall) string {
	return InstalledCluster(in.Namespace, &in.Spec.TargetCluster, in.Status.Inventory, in.Status.Cluster)
}

// InstalledCluster returns the ID of the cluster with the objects of an inventory. cluster is the
// ID in the status beside the inventory. Without an inventory it is the cluster of the spec.
func InstalledCluster(namespace string, spec *appsv1.TargetCluster, inventory *appsv1.Inventory,
	cluster string) string {
	if inventory == nil {
		return ID(namespace, spec)
	}
	return cmp.Or(cluster, plan.LocalCluster)
}

// StatusUID returns the cluster's UID for a status: the first UID that was known, or "" without an
// inventory.
func StatusUID(before, uid string, inventory *appsv1.Inventory) string {
	if inventory == nil {
		return ""
	}
	return cmp.Or(before, uid)
}

// StatusCluster returns the cluster's ID for a status: "" without an inventory and for the local
// cluster.
func StatusCluster(id string, inventory *appsv1.Inventory) string {
	if inventory == nil || id == plan.LocalCluster {
		return ""
	}
	return id
}
