package plan

import (
	"strings"
)

// OwnerKey identifies an owner of objects. It contains no generated values, so it stays the same
// when the management cluster is rebuilt.
type OwnerKey struct {
	// Installation is the --owner-id of the controller.
	Installation string
	// Cluster is the id of the target cluster; LocalCluster for the cluster of the controller.
	Cluster string
	// Kind is the kind of the owner, such as KsctlInstall.
	Kind string
	// Namespace and Name of the owner.
	Namespace, Name string
}

// LocalCluster is the id of the cluster in which the controller watches its own kinds.
const LocalCluster = "local"

// String returns the key in the format of the owner in mark annotations.
func (k OwnerKey) String() string {
	return k.Installation + "/" + k.Cluster + "/" + k.Kind + "/" + k.Namespace + "/" + k.Name
}

// ParseOwnerKey is the inverse of String; ok is false for any other text.
func ParseOwnerKey(s string) (k OwnerKey, ok bool) {
	p := strings.Split(s, "/")
	if len(p) != 5 {
		return OwnerKey{}, false
	}
	return OwnerKey{Installation: p[0], Cluster: p[1], Kind: p[2], Namespace: p[3], Name: p[4]}, true
}

// DisplayName returns the owner's name for messages, such as "KsctlInstall ns/name".
func (k OwnerKey) DisplayName() string { return k.Kind + " " + k.Namespace + "/" + k.Name }
