package state

import (
	"maps"
	"slices"
	"strings"
)

// openNames are those of what every dialect may show: what reviewing a change takes. Names of
// objects are none, for what is below an open name stays readable, and "k3s" has a token.
var openNames = set(
	// which cluster it is, and how it stands
	"ID", "cluster_name", "cluster_type", "region", "cloud_provider", "bootstrap_provider", "cluster_kubeconfig_context",
	"team", "owner", "state", "status", "IsCompleted",
	// versions
	"name", "for", "version", "k8s_distro", "k8s_version", "k3s_version", "kubeadm_version", "etcd_version", "haproxy_version",
	// machines: their names, numbers, sizes and addresses
	"names", "hostname", "hostnames", "instance_id", "vm_id", "vm_ids", "vm_size", "vm_sizes", "disk_name", "disk_names",
	"private_ip", "private_ips", "public_ip", "public_ips", "public_ip_name", "public_ip_names",
	"controlplanes", "workerplanes", "datastores", "loadbalancer",
	"no_managed_nodes", "no_managed_cluster_nodes", "nodes", "managed_node_size", "managed_node_group_vm_size",
	// what they are in
	"managed_cluster_name", "managed_node_group_name", "resource_group_name", "virtual_network_name", "network_interface_name",
	"network_interface_names", "network_security_group_name", "subnet_name", "subnet_names", "sshkey_name", "iam_role_name",
	"iam_role_name_wp", "vpc", "vpc_cidr", "net_cidr", "clusternetworkcidr",
)

// objects are the names that lead to these. What is below another one is not known, whatever it is called.
var objects = set(clustersKey, "platform", "cloud_infrastructure_state", "info_control_planes", "info_worker_planes", "info_database",
	"info_load_balancer", "kubernetes_bootstrap_state", "b", "k3s", "kubeadm", "cloud_ssh_info", "cloud_public_ips", "cloud_private_ips",
	"addons", "provisioner_addons", "apps", "cni", "components", "ksctl_specific_components", versionsKey, credentialsKey)

// named are objects in which every name is that of a cloud, or of a component.
var named = set("cloud_infrastructure_state", "components", "ksctl_specific_components")

// versionsKey is an object of versions, by the name of what they are of.
const versionsKey = "versions"

var versionNames = set("k3s", "kubeadm", "aks", "eks", "kind", "etcd", "haproxy")

func set(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// open is true for what may be read: it is called so, all that leads to it is known, and nothing
// says that it is secret.
func (l leaf) open() bool {
	if l.secret || telling(l.text()) {
		return false
	}
	above := ""
	for i, name := range l.names {
		last := i == len(l.names)-1
		switch {
		case last && (openNames[name] || above == versionsKey && versionNames[name]):
			return true
		case !objects[name] && !named[above]:
			return false
		}
		above = name
	}
	return false
}

// openRegex fits the names in a file of what may stay readable, for the setting unencrypted_regex of
// SOPS, which takes it for all that is below them: a name is left out where that has more.
func openRegex(tree any) string {
	names, all := map[string]bool{}, leaves(tree)
	for _, l := range all {
		if !l.open() {
			continue
		}
		name := l.names[len(l.names)-1]
		if !openNames[name] {
			name = versionsKey
		}
		names[name] = true
	}
	for _, l := range all {
		if !l.open() {
			for line := range strings.SplitSeq(strings.Join(l.names, "\n"), "\n") { // each of which fits by itself
				delete(names, line)
			}
		}
	}
	if len(names) == 0 {
		return nothing
	}
	// SOPS compiles it for each name that it looks at. With (?m) that takes half as long.
	return "(?m)^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
}

// nothing fits no name: without a rule SOPS leaves open what has a suffix.
const nothing = `[^\s\S]`

// exposed are JSON pointers of what can be read in an encrypted file, and is not known to be open.
func exposed(tree any) (out []string) {
	for _, l := range leaves(tree) {
		if v := l.text(); v != "" && !encrypted(v) && !l.open() {
			out = append(out, l.at)
		}
	}
	return out
}
