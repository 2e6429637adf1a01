package state

import (
	"maps"
	"slices"
	"strings"
)

// publicNames are the names of values that may stay readable, in any dialect: those that a review
// of a change needs. It has no names of objects, because SOPS leaves everything below a public name
// readable, and objects such as "k3s" contain tokens.
var publicNames = nameSet(
	// identity and status of the cluster
	"ID", "cluster_name", "cluster_type", "region", "cloud_provider", "bootstrap_provider",
	"cluster_kubeconfig_context",
	"team", "owner", "state", "status", "IsCompleted",
	// versions
	"name", "for", "version", "k8s_distro", "k8s_version", "k3s_version", "kubeadm_version", "etcd_version",
	"haproxy_version",
	// names, counts, sizes and addresses of machines
	"names", "hostname", "hostnames", "instance_id", "vm_id", "vm_ids", "vm_size", "vm_sizes", "disk_name",
	"disk_names",
	"private_ip", "private_ips", "public_ip", "public_ips", "public_ip_name", "public_ip_names",
	"controlplanes", "workerplanes", "datastores", "loadbalancer",
	"no_managed_nodes", "no_managed_cluster_nodes", "nodes", "managed_node_size", "managed_node_group_vm_size",
	// networks and groups of the machines
	"managed_cluster_name", "managed_node_group_name", "resource_group_name", "virtual_network_name",
	"network_interface_name",
	"network_interface_names", "network_security_group_name", "subnet_name", "subnet_names", "sshkey_name",
	"iam_role_name",
	"iam_role_name_wp", "vpc", "vpc_cidr", "net_cidr", "clusternetworkcidr",
)

// containerNames are the names of objects and lists that contain public values. Values below any
// other name are unknown, whatever their own name.
var containerNames = nameSet(clustersKey, "platform", "cloud_infrastructure_state", "info_control_planes",
	"info_worker_planes", "info_database",
	"info_load_balancer", "kubernetes_bootstrap_state", "b", "k3s", "kubeadm", "cloud_ssh_info", "cloud_public_ips",
	"cloud_private_ips",
	"addons", "provisioner_addons", "apps", "cni", "components", "ksctl_specific_components", versionsKey,
	credentialsKey)

// mapNames are the names of objects with arbitrary keys: names of clouds, or of components.
var mapNames = nameSet("cloud_infrastructure_state", "components", "ksctl_specific_components")

// versionsKey is the name of an object with versions by component.
const versionsKey = "versions"

var versionNames = nameSet("k3s", "kubeadm", "aks", "eks", "kind", "etcd", "haproxy")

func nameSet(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// isPublic is true for a value that may stay readable: its name is public, the path to it is known,
// and neither path nor value looks secret.
func (l leaf) isPublic() bool {
	if l.secret || looksSecret(l.text()) {
		return false
	}
	parent := ""
	for i, name := range l.path {
		last := i == len(l.path)-1
		switch {
		case last && (publicNames[name] || parent == versionsKey && versionNames[name]):
			return true
		case !containerNames[name] && !mapNames[parent]:
			return false
		}
		parent = name
	}
	return false
}

// unencryptedRegex matches the names of the public values in a file, for the SOPS setting
// unencrypted_regex. SOPS applies it to everything below a matching name, so a name is omitted if
// it is also on the path of a value that is not public.
func unencryptedRegex(tree any) string {
	names, all := map[string]bool{}, leaves(tree)
	for _, l := range all {
		if !l.isPublic() {
			continue
		}
		name := l.path[len(l.path)-1]
		if !publicNames[name] {
			name = versionsKey
		}
		names[name] = true
	}
	for _, l := range all {
		if !l.isPublic() {
			// with (?m), each line of a name can match
			for line := range strings.SplitSeq(strings.Join(l.path, "\n"), "\n") {
				delete(names, line)
			}
		}
	}
	if len(names) == 0 {
		return matchNothing
	}
	// SOPS compiles the expression for each name. With (?m) that takes half the time.
	return "(?m)^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
}

// matchNothing matches no name. Without any rule, SOPS does not encrypt names with the suffix
// _unencrypted.
const matchNothing = `[^\s\S]`

// exposedPointers returns the JSON pointers of readable values in an encrypted file that are not
// public.
func exposedPointers(tree any) []string {
	return pointersOf(tree, func(l leaf) bool { return l.text() != "" && !isEncrypted(l.text()) && !l.isPublic() })
}
