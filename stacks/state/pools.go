package state

import "slices"

// Role of a pool of machines.
type Role string

// Roles.
const (
	ControlPlane Role = "ControlPlane"
	Worker       Role = "Worker"
	Datastore    Role = "Datastore"
	LoadBalancer Role = "LoadBalancer"
)

// Pool is the machines of a role.
type Pool struct {
	Role Role
	// Size of the machines, in the cloud's words; "" if they differ or it is not said.
	Size string
	// Count of machines that there are.
	Count int
	// Machines by their number; that of a machine that is gone is left out. There are
	// none for those that the cloud manages.
	Machines []Machine
}

// Machine of a pool.
type Machine struct {
	// Ordinal is the number in its name, and its place in the document.
	Ordinal int
	Name    string
	Size    string
	// PrivateIP and PublicIP, if they are said.
	PrivateIP, PublicIP string
}

// groups are where a cloud's part of a document has its machines.
var groups = []struct {
	role Role
	key  string
}{
	{ControlPlane, "info_control_planes"},
	{Worker, "info_worker_planes"},
	{Datastore, "info_database"},
}

// poolsOf reads the machines that a document names.
func poolsOf(doc object, cloud string) []Pool {
	infra := at(doc, "cloud_infrastructure_state", cloud)
	var out []Pool
	for _, g := range groups {
		if p := newPool(g.role, machinesOf(at(infra, g.key))); p.Count > 0 {
			out = append(out, p)
		}
	}
	if count := managed(infra); count > 0 {
		out = append(out, Pool{Role: Worker, Size: managedSize(infra), Count: count})
	}
	if lb, ok := balancer(at(infra, "info_load_balancer")); ok {
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

// Keys of one thing in the words of AWS, Azure and Civo. What they say runs in
// parallel lists, some of which may be null or shorter than others.
var (
	nameKeys    = []string{"hostnames", "names"}
	sizeKeys    = []string{"vm_sizes"}
	privateKeys = []string{"private_ips", "private_ip"}
	publicKeys  = []string{"public_ips", "public_ip"}
	idKeys      = []string{"instance_id", "vm_ids"}
)

// machinesOf reads parallel lists. A machine that was deleted leaves "" in each.
func machinesOf(group any) []Machine {
	n := 0
	columns := func(keys []string) func(i int) string {
		var lists [][]string
		for _, key := range keys {
			lists = append(lists, texts(group, key))
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
		n = max(n, len(texts(group, key)))
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

// nth of a list, "" behind its end.
func nth(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// managed is how many workers a cloud manages; each calls that another name.
func managed(infra any) int {
	for _, key := range []string{"no_managed_cluster_nodes", "no_managed_nodes", "nodes"} {
		if n := number(infra, key); n > 0 {
			return n
		}
	}
	return 0
}

func managedSize(infra any) string {
	for _, key := range []string{"managed_node_size", "managed_node_group_vm_size"} {
		if s := text(infra, key); s != "" {
			return s
		}
	}
	return ""
}

// balancer is the one machine in front of a self-managed cluster.
func balancer(v any) (Machine, bool) {
	m := Machine{Name: text(v, "hostname"), Size: text(v, "vm_size"), PrivateIP: text(v, "private_ip"), PublicIP: text(v, "public_ip")}
	if m.Name == "" {
		m.Name = text(v, "name")
	}
	return m, m.Name != "" || m.PublicIP != ""
}
