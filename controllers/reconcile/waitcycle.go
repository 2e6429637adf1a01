package reconcile

import (
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// WaitNode is an object that may wait for others.
type WaitNode struct{ Kind, Namespace, Name string }

// WaitEdge is a wait of an object.
type WaitEdge struct {
	From WaitNode
	appsv1.WaitReference
}

// To returns the object that is waited for.
func (e WaitEdge) To() WaitNode {
	return WaitNode{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
}

// FindWaitCycle returns the edges of a shortest cycle of waits through an object, from the object
// on; nil if there is none. edgesOf returns the waits of an object. It is a pure function.
func FindWaitCycle(start WaitNode, edgesOf func(WaitNode) []appsv1.WaitReference) []WaitEdge {
	reachedBy := map[WaitNode]WaitEdge{} // the edge by which a node was reached first
	for queue := []WaitNode{start}; len(queue) > 0; queue = queue[1:] {
		for _, w := range edgesOf(queue[0]) {
			e := WaitEdge{From: queue[0], WaitReference: w}
			to := e.To()
			if _, seen := reachedBy[to]; seen {
				continue
			}
			reachedBy[to] = e
			if to != start {
				queue = append(queue, to)
				continue
			}
			var cycle []WaitEdge
			for at := start; len(cycle) == 0 || at != start; at = reachedBy[at].From {
				cycle = append(cycle, reachedBy[at])
			}
			slices.Reverse(cycle)
			return cycle
		}
	}
	return nil
}

// DescribeWaitCycle describes a cycle in one line, such as "KsctlInstall ns/a waits for
// KsctlInstall ns/b (DependsOn), KsctlInstall ns/b waits for KsctlInstall ns/a (Pruning)". It is
// the same for each object of the cycle.
func DescribeWaitCycle(cycle []WaitEdge) string {
	first := 0
	for i := range cycle {
		if cycle[i].From.String() < cycle[first].From.String() {
			first = i
		}
	}
	var parts []string
	for _, e := range slices.Concat(cycle[first:], cycle[:first]) {
		parts = append(parts, e.From.String()+" waits for "+e.To().String()+" ("+string(e.Type)+")")
	}
	return strings.Join(parts, ", ")
}

// String returns the kind, namespace and name.
func (n WaitNode) String() string {
	return appsv1.WaitReference{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}.String()
}
