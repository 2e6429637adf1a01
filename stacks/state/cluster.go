package state

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Types of a cluster.
const (
	// HA is a self-managed cluster to the first release, SelfManaged to the second.
	HA          = "ha"
	SelfManaged = "selfmanaged"
	// Managed is one whose control plane the cloud runs.
	Managed = "managed"
)

// ID is what ksctl tells clusters apart by.
type ID struct {
	Cloud, Type, Name, Region string
}

// Key of the cluster in ksctl's Kubernetes store.
func (id ID) Key() string {
	return strings.Join([]string{id.Cloud, id.Type, id.Name, id.Region}, ".")
}

// String is the key.
func (id ID) String() string { return id.Key() }

// ParseKey reads a key of ksctl's Kubernetes store; false if it is none.
func ParseKey(key string) (ID, bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 4 {
		return ID{}, false
	}
	return ID{Cloud: parts[0], Type: parts[1], Name: parts[2], Region: parts[3]}, true
}

// Cluster is the document of one cluster. It is not changed, and may be shared.
type Cluster struct {
	ID      ID
	Dialect Dialect
	// Bootstrap is what made the control plane: k3s or kubeadm, to the second release
	// also eks, aks and kind; empty for what a cloud manages.
	Bootstrap string
	// Versions that the document names: kubernetes, k3s, kubeadm, etcd, haproxy, eks,
	// aks, kind.
	Versions map[string]string
	// Context of the kubeconfig.
	Context string
	// Pools of machines, in the order control plane, workers, datastores, load balancer.
	Pools []Pool
	// Addons that ksctl installed.
	Addons []Addon
	// Team, Owner and Phase of the platform, from v2.7.0 on.
	Team, Owner, Phase string
	// External is true when the document was read from MongoDB: only there it has an id.
	External bool

	raw json.RawMessage
}

// zeroID is what the stores that are no database write (an ObjectID of MongoDB).
const zeroID = "000000000000000000000000"

// newCluster reads a document.
func newCluster(raw json.RawMessage, doc object) (*Cluster, error) {
	small, err := compact(raw)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		ID: ID{Cloud: text(doc, "cloud_provider"), Type: text(doc, "cluster_type"),
			Name: text(doc, "cluster_name"), Region: text(doc, "region")},
		Dialect: dialectOf(doc), Bootstrap: text(doc, "bootstrap_provider"), Context: text(doc, "cluster_kubeconfig_context"),
		Team: text(doc, "platform", "team"), Owner: text(doc, "platform", "owner"), Phase: text(doc, "platform", "state"),
		raw: small,
	}
	id := text(doc, "ID")
	c.External = id != "" && id != zeroID
	c.Versions, c.Pools, c.Addons = versionsOf(doc, c.ID.Cloud), poolsOf(doc, c.ID.Cloud), addonsOf(doc)
	return c, nil
}

// JSON of the document: as it was read, without white space. It holds secrets.
func (c *Cluster) JSON() []byte { return c.raw }

// KubeConfig of the cluster, "" if the document has none. It is a secret.
func (c *Cluster) KubeConfig() string { return text(c.tree(), "cluster_kubeconfig") }

// tree of the document. It is made anew each time: documents are kept, and it takes much more room.
func (c *Cluster) tree() any {
	v, err := decode(c.raw)
	if err != nil {
		return nil // it was read before
	}
	return v
}

// Format implements fmt.Formatter: a document is never printed.
func (c Cluster) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "cluster %s", c.ID) }

// versionsOf reads what every dialect has where.
func versionsOf(doc object, cloud string) map[string]string {
	out := map[string]string{}
	put := func(name string, keys ...string) {
		if v := text(doc, keys...); v != "" {
			out[name] = v
		}
	}
	put("kubernetes", "kubernetes_bootstrap_state", "b", "k8s_version")
	put("kubernetes", "cloud_infrastructure_state", cloud, "b", "k8s_version")
	put("k3s", "kubernetes_bootstrap_state", "k3s", "k3s_version")
	put("kubeadm", "kubernetes_bootstrap_state", "kubeadm", "kubeadm_version")
	put("etcd", "kubernetes_bootstrap_state", "b", "etcd_version")
	put("haproxy", "kubernetes_bootstrap_state", "b", "haproxy_version")
	for _, name := range []string{"k3s", "kubeadm", "aks", "eks", "kind", "etcd", "haproxy"} {
		put(name, "versions", name)
	}
	return out
}

// Kubernetes is the version that the cluster was made with; "" if the document does not say.
func (c *Cluster) Kubernetes() string {
	for _, name := range []string{"kubernetes", "k3s", "kubeadm", "eks", "aks", "kind"} {
		if v := c.Versions[name]; v != "" {
			return v
		}
	}
	return ""
}

// Addon is something that ksctl installed.
type Addon struct {
	Name string
	// For is what it is of, to the second release.
	For string
	// Version of it, or of each of its components.
	Version    string
	Components map[string]string
	// CNI is true for the network of the cluster.
	CNI bool
}

func addonsOf(doc object) []Addon {
	var out []Addon
	for _, key := range []string{"addons", "provisioner_addons"} {
		apps, _ := at(doc, key, "apps").([]any)
		for _, app := range apps {
			out = appendAddon(out, app, false)
		}
		out = appendAddon(out, at(doc, key, "cni"), true)
	}
	return out
}

func appendAddon(out []Addon, v any, cni bool) []Addon {
	a := Addon{Name: text(v, "name"), For: text(v, "for"), Version: text(v, "version"), CNI: cni}
	if a.Name == "" {
		return out
	}
	for _, key := range []string{"components", "ksctl_specific_components"} {
		parts, _ := at(v, key).(object)
		for id := range parts {
			if a.Components == nil {
				a.Components = map[string]string{}
			}
			a.Components[id] = text(parts, id, "version")
		}
	}
	return append(out, a)
}
