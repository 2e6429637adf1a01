package target

import (
	"cmp"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
)

// secretPrefix begins the id of a cluster that is known by a kubeconfig alone.
const secretPrefix = "secret:"

// ID is the id of the cluster that an object in a namespace names.
func ID(namespace string, t *appsv1.TargetCluster) string {
	switch {
	case t.ClusterRef != nil:
		return ClusterID(cmp.Or(t.ClusterRef.Namespace, namespace), t.ClusterRef.Name)
	case t.KubeConfig != nil:
		ref := t.KubeConfig.SecretRef
		id := secretPrefix + namespace + "." + ref.Name
		if ref.Key != "" {
			id += ":" + ref.Key
		}
		return id
	}
	return engine.LocalCluster
}

// ClusterID is the id of a KsctlCluster. A namespace has no dot, so that it is one cluster's.
func ClusterID(namespace, name string) string { return namespace + "." + name }

// ParseClusterID is the inverse of ClusterID; ok is false for the id of anything else.
func ParseClusterID(id string) (namespace, name string, ok bool) {
	if strings.HasPrefix(id, secretPrefix) {
		return "", "", false
	}
	return strings.Cut(id, ".")
}

// People names a cluster in messages.
func People(id string) string {
	if id == engine.LocalCluster {
		return "this cluster"
	}
	kind, rest := "KsctlCluster ", id
	if name, ok := strings.CutPrefix(id, secretPrefix); ok {
		kind, rest = "the cluster of Secret ", name
	}
	namespace, name, _ := strings.Cut(rest, ".")
	name, key, keyed := strings.Cut(name, ":")
	if keyed {
		return kind + namespace + "/" + name + ", key " + key
	}
	return kind + namespace + "/" + name
}

// OfInstall is the id of the cluster that has what an install installed, or is to have it.
func OfInstall(in *appsv1.KsctlInstall) string {
	return Installed(in.Namespace, &in.Spec.TargetCluster, in.Status.Inventory, in.Status.Cluster)
}

// Installed is the id of the cluster that has what an inventory lists, as a status has the
// two; without an inventory that of the cluster that the spec names.
func Installed(namespace string, spec *appsv1.TargetCluster, inventory *appsv1.Inventory, cluster string) string {
	if inventory == nil {
		return ID(namespace, spec)
	}
	return cmp.Or(cluster, engine.LocalCluster)
}

// StatusUID is what a status says of the uid of that cluster: the first that was known.
func StatusUID(before, uid string, inventory *appsv1.Inventory) string {
	if inventory == nil {
		return ""
	}
	return cmp.Or(before, uid)
}

// Status is what a status says of the cluster that has what an inventory lists.
func Status(id string, inventory *appsv1.Inventory) string {
	if inventory == nil || id == engine.LocalCluster {
		return ""
	}
	return id
}
