package nodegroup

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
)

// GroupID returns the node group ID of a pool in Cluster Autoscaler.
func GroupID(key types.NamespacedName, pool string) string {
	return groupIDPrefix(key) + pool
}

// groupIDPrefix returns the prefix of all group IDs of a cluster. Neither name can contain a slash,
// so no ID has the prefix of another cluster.
func groupIDPrefix(key types.NamespacedName) string { return key.Namespace + "/" + key.Name + "/" }

// Node identifies a node, or a machine without a node, in requests of Cluster Autoscaler.
type Node struct {
	Name, ProviderID string
}

// index is a Cluster with lookup tables. It is immutable.
type index struct {
	*Cluster
	// Positions of groups by their ID and by the name of their pool, and of workers by the name and
	// by the provider ID of their node.
	groupByID, groupByPool           map[string]int
	workerByNode, workerByProviderID map[string]int
}

func newIndex(c *Cluster) *index {
	x := &index{Cluster: c, groupByID: make(map[string]int, len(c.Groups)),
		groupByPool:  make(map[string]int, len(c.Groups)),
		workerByNode: make(map[string]int, len(c.Workers)), workerByProviderID: make(map[string]int, len(c.Workers))}
	for i := range c.Groups {
		x.groupByID[c.Groups[i].ID] = i
		x.groupByPool[c.Groups[i].Name] = i
	}
	for i := range c.Workers {
		// If two workers have the same name or provider ID, a lookup finds neither.
		addUnique(x.workerByNode, c.Workers[i].Node, i)
		addUnique(x.workerByProviderID, c.Workers[i].ProviderID, i)
	}
	return x
}

// ambiguous is the position of a key that two workers share.
const ambiguous = -1

func addUnique(to map[string]int, name string, at int) {
	if name == "" {
		return
	}
	if _, taken := to[name]; taken {
		at = ambiguous
	}
	to[name] = at
}

// group returns the position of a group. The error has code NotFound.
func (x *index) group(id string) (int, error) {
	if at, ok := x.groupByID[id]; ok {
		return at, nil
	}
	return 0, reject(codes.NotFound, "node group %q not found in this cluster", truncateName(id))
}

// isOwnGroupID reports whether the ID is of a group that the cluster has or may have had.
func (x *index) isOwnGroupID(id string) bool { return strings.HasPrefix(id, groupIDPrefix(x.Key)) }

// worker returns the position of a node's worker, by provider ID or by name. It tries each field as
// either of them: for a machine without a Node object, Cluster Autoscaler sends the provider ID as
// the name. The result is false if no worker or more than one matches.
func (x *index) worker(n Node) (int, bool) {
	found, ok := ambiguous, false
	for _, key := range []struct {
		workers map[string]int
		name    string
	}{{x.workerByProviderID, n.ProviderID}, {x.workerByNode, n.Name}, {x.workerByNode, n.ProviderID},
		{x.workerByProviderID, n.Name}} {
		at, there := key.workers[key.name]
		switch {
		case !there:
		case at == ambiguous || ok && at != found:
			return 0, false
		default:
			found, ok = at, true
		}
	}
	return found, ok
}

// groupForNode returns the position of the group of a node or of a placeholder.
func (x *index) groupForNode(n Node) (int, bool) {
	if id, _, ok := parsePlaceholder(n); ok {
		at, ok := x.groupByID[id]
		return at, ok
	}
	w, ok := x.worker(n)
	if !ok || x.Workers[w].Pool == "" {
		return 0, false
	}
	at, ok := x.groupByPool[x.Workers[w].Pool]
	return at, ok
}

// placeholderPrefix starts the IDs of placeholders: instances that represent failed machines.
const placeholderPrefix = "ksctl-failed://"

// placeholderID returns the ID of the placeholder for the k-th failed machine of a group.
func placeholderID(group string, k int) string {
	return placeholderPrefix + group + "/" + strconv.Itoa(k)
}

// parsePlaceholder parses the ID of a placeholder. ok is false if n is not a placeholder.
func parsePlaceholder(n Node) (group string, k int, ok bool) {
	for _, id := range []string{n.ProviderID, n.Name} {
		rest, is := strings.CutPrefix(id, placeholderPrefix)
		if !is {
			continue
		}
		at := strings.LastIndexByte(rest, '/')
		if at < 0 {
			continue
		}
		k, err := strconv.Atoi(rest[at+1:])
		if err == nil && k >= 0 && placeholderID(rest[:at], k) == id {
			return rest[:at], k, true
		}
	}
	return "", 0, false
}
