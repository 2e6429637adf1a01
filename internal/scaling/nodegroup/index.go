package nodegroup

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
)

// GroupID is what Cluster Autoscaler knows a pool by.
func GroupID(key types.NamespacedName, pool string) string {
	return prefixOf(key) + pool
}

// prefixOf is how the ids of a cluster's groups begin. Neither name can have a slash in it, so
// no id begins like those of another cluster.
func prefixOf(key types.NamespacedName) string { return key.Namespace + "/" + key.Name + "/" }

// Node is how Cluster Autoscaler names a node, or a machine that it takes for one.
type Node struct {
	Name, ProviderID string
}

// index finds what is in a Cluster. It is not changed.
type index struct {
	*Cluster
	// groups by their id and by the pool's name, and workers by the name of their node and
	// its providerID: where they are.
	groups, pools     map[string]int
	names, providerID map[string]int
}

func newIndex(c *Cluster) *index {
	x := &index{Cluster: c, groups: make(map[string]int, len(c.Groups)), pools: make(map[string]int, len(c.Groups)),
		names: make(map[string]int, len(c.Workers)), providerID: make(map[string]int, len(c.Workers))}
	for i := range c.Groups {
		x.groups[c.Groups[i].ID] = i
		x.pools[c.Groups[i].Name] = i
	}
	for i := range c.Workers {
		// Of two that claim the same, none is chosen.
		enter(x.names, c.Workers[i].Node, i)
		enter(x.providerID, c.Workers[i].ProviderID, i)
	}
	return x
}

// contested is where two workers are by the same name.
const contested = -1

func enter(to map[string]int, name string, at int) {
	if name == "" {
		return
	}
	if _, taken := to[name]; taken {
		at = contested
	}
	to[name] = at
}

// group finds a group by its id.
func (x *index) group(id string) (int, error) {
	if at, ok := x.groups[id]; ok {
		return at, nil
	}
	return 0, refuse(codes.NotFound, "there is no node group %q of this cluster", brief(id))
}

// own is true for the id of a group that the cluster has, or may have had.
func (x *index) own(id string) bool { return strings.HasPrefix(id, prefixOf(x.Key)) }

// worker finds the worker of a node, by its providerID or its name: a machine that
// Cluster Autoscaler has only heard of has the one for the other. It is false where there is
// none, and where they are two.
func (x *index) worker(n Node) (int, bool) {
	found, ok := contested, false
	for _, by := range []struct {
		workers map[string]int
		name    string
	}{{x.providerID, n.ProviderID}, {x.names, n.Name}, {x.names, n.ProviderID}, {x.providerID, n.Name}} {
		at, there := by.workers[by.name]
		switch {
		case !there:
		case at == contested || ok && at != found:
			return 0, false
		default:
			found, ok = at, true
		}
	}
	return found, ok
}

// groupOf finds the group of a node, or of a machine that could not be made.
func (x *index) groupOf(n Node) (int, bool) {
	if id, _, ok := placeholderOf(n); ok {
		at, ok := x.groups[id]
		return at, ok
	}
	w, ok := x.worker(n)
	if !ok || x.Workers[w].Pool == "" {
		return 0, false
	}
	at, ok := x.pools[x.Workers[w].Pool]
	return at, ok
}

// placeholders are instances for machines that could not be made.
const placeholders = "ksctl-failed://"

// placeholder is the id of the k-th machine of a group that could not be made.
func placeholder(group string, k int) string {
	return placeholders + group + "/" + strconv.Itoa(k)
}

// placeholderOf reads the id of a placeholder. It is false where n is none.
func placeholderOf(n Node) (group string, k int, ok bool) {
	for _, id := range []string{n.ProviderID, n.Name} {
		rest, is := strings.CutPrefix(id, placeholders)
		if !is {
			continue
		}
		at := strings.LastIndexByte(rest, '/')
		if at < 0 {
			continue
		}
		k, err := strconv.Atoi(rest[at+1:])
		if err == nil && k >= 0 && placeholder(rest[:at], k) == id {
			return rest[:at], k, true
		}
	}
	return "", 0, false
}
