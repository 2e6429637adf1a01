package state

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Values of ID.Type.
const (
	// HA is a self-managed cluster in ksctl v1, SelfManaged in v2.
	HA          = "ha"
	SelfManaged = "selfmanaged"
	// Managed is a cluster with a control plane that the cloud runs.
	Managed = "managed"
)

// ID identifies a cluster in ksctl.
type ID struct {
	Cloud, Type, Name, Region string
}

// Key returns the key of the cluster in the Kubernetes store of ksctl.
func (id ID) Key() string {
	return strings.Join([]string{id.Cloud, id.Type, id.Name, id.Region}, ".")
}

// String returns the key, for messages.
func (id ID) String() string {
	if id == (ID{}) {
		return "a cluster without name, cloud, type and region"
	}
	return id.Key()
}

// ParseKey parses a key of the Kubernetes store of ksctl. It returns false for any other text.
func ParseKey(key string) (ID, bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 4 {
		return ID{}, false
	}
	return ID{Cloud: parts[0], Type: parts[1], Name: parts[2], Region: parts[3]}, true
}

// Cluster is the document of one cluster. It is immutable and safe to share.
type Cluster struct {
	ID      ID
	Dialect Dialect
	// Bootstrap is the bootstrap provider of the control plane: k3s or kubeadm, in v2 also eks, aks
	// and kind. It is empty if the cloud manages the control plane.
	Bootstrap string
	// Versions are the versions in the document, by name: kubernetes, k3s, kubeadm, etcd, haproxy,
	// eks, aks, kind.
	Versions map[string]string
	// Context is the name of the kubeconfig context.
	Context string
	// Pools are the machines, in the order control plane, workers, datastores, load balancer.
	Pools []Pool
	// Addons are the addons that ksctl installed.
	Addons []Addon
	// Phase is the state of the cluster in the platform, which documents have since v2.7.0.
	Phase string
	// External is true if the document comes from a MongoDB: only there it has an ID.
	External bool

	raw json.RawMessage
}

// zeroObjectID is the ID (an ObjectID of MongoDB) that all other stores write.
const zeroObjectID = "000000000000000000000000"

// newCluster returns the Cluster of a document.
func newCluster(raw json.RawMessage, doc object) *Cluster {
	c := &Cluster{
		ID: ID{Cloud: stringAt(doc, "cloud_provider"), Type: stringAt(doc, "cluster_type"),
			Name: stringAt(doc, "cluster_name"), Region: stringAt(doc, "region")},
		Dialect: dialectOf(doc), Bootstrap: stringAt(doc, "bootstrap_provider"),
		Context: stringAt(doc, "cluster_kubeconfig_context"),
		Phase:   stringAt(doc, "platform", "state"), Addons: addonsOf(doc), raw: compact(raw),
	}
	id := stringAt(doc, "ID")
	c.External = id != "" && id != zeroObjectID
	c.Versions, c.Pools = versionsOf(doc, c.ID.Cloud), poolsOf(doc, c.ID.Cloud)
	return c
}

// JSON returns the document as it was read, without white space. It contains secrets.
func (c *Cluster) JSON() []byte { return c.raw }

// KubeConfig returns the kubeconfig of the cluster, or "". It is secret.
func (c *Cluster) KubeConfig() string { return stringAt(c.tree(), "cluster_kubeconfig") }

// tree decodes the document. It decodes on each call, because a decoded document takes much more
// memory than its bytes.
func (c *Cluster) tree() any {
	v, _ := decode(c.raw) //nolint:errcheck // the document was decoded before
	return v
}

// Format implements fmt.Formatter. It prints the key only.
func (c Cluster) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "cluster %s", c.ID) }

// versionsOf reads the versions of a document of any dialect.
func versionsOf(doc object, cloud string) map[string]string {
	out := map[string]string{}
	put := func(name string, keys ...string) {
		if v := stringAt(doc, keys...); v != "" {
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

// KubernetesVersion returns the Kubernetes version that the cluster was created with; "" if the
// document has none.
func (c *Cluster) KubernetesVersion() string {
	for _, name := range []string{"kubernetes", "k3s", "kubeadm", "eks", "aks", "kind"} {
		if v := c.Versions[name]; v != "" {
			return v
		}
	}
	return ""
}

// Addon is an addon that ksctl installed. The version is empty if only its components have one.
type Addon struct{ Name, Version string }

func addonsOf(doc object) []Addon {
	var out []Addon
	for _, key := range []string{"addons", "provisioner_addons"} {
		apps, _ := lookup(doc, key, "apps").([]any)
		for _, v := range append(slices.Clone(apps), lookup(doc, key, "cni")) {
			if name := stringAt(v, "name"); name != "" {
				out = append(out, Addon{Name: name, Version: stringAt(v, "version")})
			}
		}
	}
	return out
}
