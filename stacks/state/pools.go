package state

import "slices"

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
	// Machines are sorted by ordinal, without deleted ones. It is empty for machines that the cloud
	// manages.
	Machines []Machine
}

// Machine is one machine of a pool.
type Machine struct {
	// Ordinal is the number in the name of the machine, and its index in the document.
	Ordinal int
	Name    string
	Size    string
	// PrivateIP and PublicIP are empty if the document has none.
	PrivateIP, PublicIP string
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
		if p := newPool(g.role, machinesOf(lookup(infra, g.key))); p.Count > 0 {
			out = append(out, p)
		}
	}
	if count := managedCount(infra); count > 0 {
		out = append(out, Pool{Role: Worker, Size: managedSize(infra), Count: count})
	}
	if lb, ok := loadBalancerOf(lookup(infra, "info_load_balancer")); ok {
		out = append(out, newPool(LoadBalancer, []Machine{lb}))
	}
	return out
}

func newPool(role Role, machines []Machine) Pool {
	p := Pool{Role: role, Count: len(machines), Machines: machines}
	for i, m := range machines {
		if i == 0 {
			p.Size = m.Size
		}
		if m.Size != p.Size {
			p.Size = ""
		}
	}
	return p
}

// Keys of each property of machines, as AWS, Azure and Civo name it. The values are parallel lists.
// Some of them may be null, or shorter than others.
var (
	nameKeys    = []string{"hostnames", "names"}
	sizeKeys    = []string{"vm_sizes"}
	privateKeys = []string{"private_ips", "private_ip"}
	publicKeys  = []string{"public_ips", "public_ip"}
	idKeys      = []string{"instance_id", "vm_ids"}
)

// machinesOf reads machines from parallel lists. A deleted machine leaves "" in each list.
func machinesOf(group any) []Machine {
	n := 0
	columns := func(keys []string) func(i int) string {
		var lists [][]string
		for _, key := range keys {
			lists = append(lists, stringsAt(group, key))
		}
		return func(i int) string {
			for _, list := range lists {
				if v := nth(list, i); v != "" {
					return v
				}
			}
			return ""
		}
	}
	for _, key := range slices.Concat(nameKeys, idKeys) {
		n = max(n, len(stringsAt(group, key)))
	}
	name, id, size := columns(nameKeys), columns(idKeys), columns(sizeKeys)
	private, public := columns(privateKeys), columns(publicKeys)
	var out []Machine
	for i := range n {
		if name(i) != "" || id(i) != "" {
			out = append(out, Machine{Ordinal: i, Name: name(i), Size: size(i), PrivateIP: private(i), PublicIP: public(i)})
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

// managedCount returns the number of workers that the cloud manages. Each cloud has its own key.
func managedCount(infra any) int {
	for _, key := range []string{"no_managed_cluster_nodes", "no_managed_nodes", "nodes"} {
		if n := intAt(infra, key); n > 0 {
			return n
		}
	}
	return 0
}

func managedSize(infra any) string {
	for _, key := range []string{"managed_node_size", "managed_node_group_vm_size"} {
		if s := stringAt(infra, key); s != "" {
			return s
		}
	}
	return ""
}

// loadBalancerOf reads the load balancer of a self-managed cluster, which is one machine. It
// returns false if the document has none.
func loadBalancerOf(v any) (Machine, bool) {
	m := Machine{Name: stringAt(v, "hostname"), Size: stringAt(v, "vm_size"), PrivateIP: stringAt(v, "private_ip"), PublicIP: stringAt(v, "public_ip")}
	if m.Name == "" {
		m.Name = stringAt(v, "name")
	}
	return m, m.Name != "" || m.PublicIP != ""
}
