package state

import (
	"cmp"
	"slices"
)

// Role is the role of the machines in a pool.
type Role string

// Roles.
const (
	ControlPlane Role = "ControlPlane"
	Worker       Role = "Worker"
	Datastore    Role = "Datastore"
	LoadBalancer Role = "LoadBalancer"
)

// Pool is a group of machines with the same role.
type Pool struct {
	Role Role
	// Size is the machine type, as the cloud names it; "" if the machines differ or the document
	// has none.
	Size string
	// Count is the number of existing machines.
	Count int
	// Machines are sorted by ordinal, without deleted ones. It is empty for load balancers, and for
	// machines that the cloud manages.
	Machines []Machine
}

// Machine is one machine of a pool.
type Machine struct {
	// Ordinal is the number in the name of the machine, and its index in the document.
	Ordinal    int
	Name, Size string
}

// machineGroups are the keys of machines in the infrastructure of a document.
var machineGroups = []struct {
	role Role
	key  string
}{
	{ControlPlane, "info_control_planes"},
	{Worker, "info_worker_planes"},
	{Datastore, "info_database"},
}

// poolsOf reads the machines of a document.
func poolsOf(doc object, cloud string) []Pool {
	infra := lookup(doc, "cloud_infrastructure_state", cloud)
	var out []Pool
	for _, g := range machineGroups {
		machines := machinesOf(lookup(infra, g.key))
		if len(machines) == 0 {
			continue
		}
		p := Pool{Role: g.role, Size: machines[0].Size, Count: len(machines), Machines: machines}
		if slices.ContainsFunc(machines, func(m Machine) bool { return m.Size != p.Size }) {
			p.Size = ""
		}
		out = append(out, p)
	}
	// Each cloud has its own keys for the workers that it manages.
	if count := cmp.Or(intAt(infra, "no_managed_cluster_nodes"), intAt(infra, "no_managed_nodes"),
		intAt(infra, "nodes")); count > 0 {
		size := cmp.Or(stringAt(infra, "managed_node_size"), stringAt(infra, "managed_node_group_vm_size"))
		out = append(out, Pool{Role: Worker, Size: size, Count: count})
	}
	// The load balancer of a self-managed cluster is one machine.
	lb := lookup(infra, "info_load_balancer")
	if cmp.Or(stringAt(lb, "hostname"), stringAt(lb, "name"), stringAt(lb, "public_ip")) != "" {
		out = append(out, Pool{Role: LoadBalancer, Size: stringAt(lb, "vm_size"), Count: 1})
	}
	return out
}

// machinesOf reads machines from parallel lists, as AWS, Azure and Civo name them. Some of them may
// be null, or shorter than others. A deleted machine leaves "" in each list.
func machinesOf(group any) (out []Machine) {
	column := func(keys ...string) (values []string) {
		for _, key := range keys {
			for i, v := range stringsAt(group, key) {
				if i == len(values) {
					values = append(values, "")
				}
				values[i] = cmp.Or(values[i], v)
			}
		}
		return values
	}
	names, ids, sizes := column("hostnames", "names"), column("instance_id", "vm_ids"), column("vm_sizes")
	for i := range max(len(names), len(ids)) {
		if nth(names, i) != "" || nth(ids, i) != "" {
			out = append(out, Machine{Ordinal: i, Name: nth(names, i), Size: nth(sizes, i)})
		}
	}
	return out
}

// nth returns the entry of a list, or "" beyond its end.
func nth(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}
