package nodegroup

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// PlanDelete decides the deletion of nodes of a group, all of them or none. ksctl can only delete
// the end of its array of workers, so the live nodes must be exactly that end. Nodes that are
// already being deleted are skipped. Failed machines are subtracted from the target, in any mode;
// with live nodes, all of them are. Deleting live nodes never leaves the group with fewer machines
// than its Min. An error is a *RejectedError.
func PlanDelete(c *Cluster, id string, nodes []Node) ([]Change, error) {
	x := newIndex(c)
	at, err := x.group(id)
	if err != nil {
		return nil, err
	}
	if c.UnreadyReason != nil {
		return nil, notReadyError(c)
	}
	counts, removing := x.countMachines()
	d := deletion{index: x, group: &c.Groups[at], removing: removing, counts: counts,
		live: map[int]bool{}, failed: map[int]bool{}}
	for _, n := range nodes {
		if err := d.add(n); err != nil {
			return nil, err
		}
	}
	s := &counts[at]
	if err := d.validate(s); err != nil {
		return nil, err
	}
	if len(d.live) == 0 && len(d.failed) == 0 {
		return nil, nil
	}
	cleared := len(d.failed)
	if len(d.live) > 0 {
		// In a target that still included failed machines, live nodes would take their places.
		cleared = s.failed
	}
	target := max(int(d.group.Target), 0)
	target = max(target-cleared, min(target, s.joined)) - len(d.live)
	return []Change{{Pool: d.group.Name, Target: int32(target), ClearFailed: int32(cleared),
		Reason: d.reason(cleared)}}, nil
}

// deletion collects the nodes of a group to delete.
type deletion struct {
	*index
	group    *Group
	removing []bool
	counts   []groupCounts
	// live is the set of live workers by position, failed the set of failed machines by number.
	live, failed map[int]bool
}

// add adds a node, unless it is already deleted or being deleted.
func (d *deletion) add(n Node) error {
	if group, k, ok := parsePlaceholder(n); ok {
		if group != d.group.ID {
			return reject(codes.NotFound, "node %q is not in pool %s", truncateName(n.Name), d.group.Name)
		}
		if k < d.group.failedCount() {
			d.failed[k] = true
		}
		return nil
	}
	at, ok := d.worker(n)
	if !ok {
		return reject(codes.NotFound, "no worker of the cluster has node name %q and providerID %q",
			truncateName(n.Name), truncateName(n.ProviderID))
	}
	w := &d.Workers[at]
	switch {
	case w.Pool != d.group.Name:
		return reject(codes.NotFound, "%s is not in pool %s", d.describeWorker(at), d.group.Name)
	case w.Deleting:
		return nil
	case d.Mode != clusterv1.ScalingAuto && d.Mode != "":
		return reject(codes.FailedPrecondition, "%s is not deleted: spec.mode is %s", d.describeWorker(at), d.Mode)
	case !d.removing[at]:
		d.live[at] = true
	}
	return nil
}

// validate returns a *RejectedError if the live nodes must not be deleted.
func (d *deletion) validate(s *groupCounts) error {
	if len(d.live) == 0 {
		return nil
	}
	first := len(d.Workers)
	for at := range d.live {
		first = min(first, at)
	}
	for at := len(d.Workers) - 1; at > first; at-- {
		if !d.live[at] && !d.removing[at] {
			return reject(codes.FailedPrecondition,
				"%s cannot be deleted before %s: ksctl deletes the newest worker first", d.describeWorker(first),
				d.describeWorker(at))
		}
	}
	for at := range d.Workers {
		// Deletion only sets the pool's number of machines, which cannot say which of the two to
		// delete.
		if w := &d.Workers[at]; w.Pool == d.group.Name && w.Node == "" && !d.removing[at] {
			return reject(codes.FailedPrecondition,
				"%s cannot be deleted yet: %s of its pool must join or be canceled first", d.describeWorker(first),
				d.describeWorker(at))
		}
	}
	for i := range d.counts {
		// New machines are appended to the array: the nodes would no longer be at its end.
		if n := d.counts[i].missing(); n > 0 {
			return reject(codes.FailedPrecondition, "%s cannot be deleted yet: pool %s waits for %s",
				d.describeWorker(first), d.Groups[i].Name, formatMachines(n))
		}
	}
	if left := s.desired - len(d.live); left < int(d.group.Min) {
		return reject(codes.FailedPrecondition, "pool %s would have %s, but its minSize is %d", d.group.Name,
			formatMachines(max(left, 0)), d.group.Min)
	}
	return nil
}

// describeWorker returns a description of a worker for users.
func (d *deletion) describeWorker(at int) string {
	w := &d.Workers[at]
	switch {
	case w.Node == "":
		return fmt.Sprintf("worker %d (not joined)", w.Index)
	case w.Pool == "":
		return fmt.Sprintf("worker %d (node %s, in no pool)", w.Index, w.Node)
	}
	return fmt.Sprintf("worker %d (node %s)", w.Index, w.Node)
}

// maxNamedNodes bounds how many nodes a reason names.
const maxNamedNodes = 3

func (d *deletion) reason(cleared int) string {
	var out []string
	if n := len(d.live); n > 0 {
		var names []string
		for at := len(d.Workers) - 1; at >= 0 && len(names) < maxNamedNodes; at-- {
			if d.live[at] {
				names = append(names, d.Workers[at].Node)
			}
		}
		if n > maxNamedNodes {
			names = append(names, fmt.Sprintf("%d more", n-maxNamedNodes))
		}
		out = append(out, "Cluster Autoscaler deleted "+strings.Join(names, ", "))
	}
	if cleared > 0 {
		out = append(out, fmt.Sprintf("%s could not be created: %s", formatMachines(cleared), d.group.Failure.code()))
	}
	return strings.Join(out, "; ")
}
