package nodegroup

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Delete decides on deleting nodes of a group, all of them or none. ksctl deletes the end of
// its array of workers and nothing else, so live nodes have to be just that. Who is being deleted
// already is passed over, and a machine that could not be made is taken off the target, whatever
// the mode. No deletion of a live node leaves the group with fewer than its Min. An error is a *Refusal.
func Delete(c *Cluster, id string, nodes []Node) ([]Change, error) {
	x := newIndex(c)
	at, err := x.group(id)
	if err != nil {
		return nil, err
	}
	if c.Unready != nil {
		return nil, unready(c)
	}
	standings, leaving := c.standings()
	d := deletion{index: x, group: &c.Groups[at], leaving: leaving, standings: standings,
		live: map[int]bool{}, failed: map[int]bool{}}
	for _, n := range nodes {
		if err := d.take(n); err != nil {
			return nil, err
		}
	}
	s := &standings[at]
	if err := d.permit(s); err != nil {
		return nil, err
	}
	if len(d.live) == 0 && len(d.failed) == 0 {
		return nil, nil
	}
	target := max(int(d.group.Target), 0)
	target = max(target-len(d.failed), min(target, s.joined)) - len(d.live)
	return []Change{{Pool: d.group.Name, Target: int32(target), Forgive: int32(len(d.failed)), Reason: d.reason()}}, nil
}

// deletion is nodes of a group that are to go.
type deletion struct {
	*index
	group     *Group
	leaving   []bool
	standings []standing
	// live workers, by where they are, and failed machines, by their number.
	live, failed map[int]bool
}

// take adds a node, unless it is gone, or going, already.
func (d *deletion) take(n Node) error {
	if group, k, ok := placeholderOf(n); ok {
		if group != d.group.ID {
			return refuse(codes.NotFound, "node %q is not of pool %s", brief(n.Name), d.group.Name)
		}
		if k < d.group.failed() {
			d.failed[k] = true
		}
		return nil
	}
	at, ok := d.worker(n)
	if !ok {
		return refuse(codes.NotFound, "no worker of the cluster is node %q with the providerID %q", brief(n.Name), brief(n.ProviderID))
	}
	w := &d.Workers[at]
	switch {
	case w.Pool != d.group.Name:
		return refuse(codes.NotFound, "%s is not of pool %s", d.name(at), d.group.Name)
	case w.Deleting:
		return nil
	case d.Mode != clusterv1.ScalingAuto && d.Mode != "":
		return refuse(codes.FailedPrecondition, "%s is kept: mode is %s", d.name(at), d.Mode)
	case !d.leaving[at]:
		d.live[at] = true
	}
	return nil
}

// permit refuses to delete live nodes where they may not go.
func (d *deletion) permit(s *standing) error {
	if len(d.live) == 0 {
		return nil
	}
	first := len(d.Workers)
	for at := range d.live {
		first = min(first, at)
	}
	for at := len(d.Workers) - 1; at > first; at-- {
		if !d.live[at] && !d.leaving[at] {
			return refuse(codes.FailedPrecondition, "%s can't go before %s: ksctl deletes the worker that it made last", d.name(first), d.name(at))
		}
	}
	for at := range d.Workers {
		// Which of the two is to go could not be told from their number.
		if w := &d.Workers[at]; w.Pool == d.group.Name && w.Node == "" && !d.leaving[at] {
			return refuse(codes.FailedPrecondition, "%s can't go yet: %s of its pool has to join first, or to be given up", d.name(first), d.name(at))
		}
	}
	for i := range d.standings {
		// They would come to the end of the array, and the nodes could not go any more.
		if n := d.standings[i].coming(); n > 0 {
			return refuse(codes.FailedPrecondition, "%s can't go yet: pool %s gets %s first", d.name(first), d.Groups[i].Name, machines(n))
		}
	}
	if left := s.wanted - len(d.live); left < int(d.group.Min) {
		return refuse(codes.FailedPrecondition, "pool %s would have %s, and its minSize is %d", d.group.Name, machines(max(left, 0)), d.group.Min)
	}
	return nil
}

// name of a worker, for people.
func (d *deletion) name(at int) string {
	w := &d.Workers[at]
	switch {
	case w.Node == "":
		return fmt.Sprintf("worker %d (not joined)", w.Index)
	case w.Pool == "":
		return fmt.Sprintf("worker %d (node %s, of no pool)", w.Index, w.Node)
	}
	return fmt.Sprintf("worker %d (node %s)", w.Index, w.Node)
}

// named is how many nodes a reason names.
const named = 3

func (d *deletion) reason() string {
	var out []string
	if n := len(d.live); n > 0 {
		var names []string
		for at := len(d.Workers) - 1; at >= 0 && len(names) < named; at-- {
			if d.live[at] {
				names = append(names, d.Workers[at].Node)
			}
		}
		if n > named {
			names = append(names, fmt.Sprintf("%d more", n-named))
		}
		out = append(out, "Cluster Autoscaler deleted "+strings.Join(names, ", "))
	}
	if n := len(d.failed); n > 0 {
		out = append(out, fmt.Sprintf("%s could not be made: %s", machines(n), d.group.Failure.code()))
	}
	return strings.Join(out, "; ")
}
