package nodegroup

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// PlanIncrease decides an increase of a group by delta machines. For any delta, the group never
// gets more than its Max, nor the cluster more than its MaxNodes. Once the backoff of a failure has
// ended, the increase clears the failed machines. An error is a *RejectedError.
func PlanIncrease(c *Cluster, id string, delta int32, now time.Time) ([]Change, error) {
	x := newIndex(c)
	at, err := x.group(id)
	if err != nil {
		return nil, err
	}
	g := &c.Groups[at]
	switch {
	case delta < 1:
		return nil, reject(codes.InvalidArgument, "pool %s: invalid increase by %d machines: must be at least 1",
			g.Name, delta)
	case c.Mode == clusterv1.ScalingOff:
		return nil, reject(codes.FailedPrecondition, "pool %s: no machines are created while spec.mode is Off", g.Name)
	case c.UnreadyReason != nil:
		return nil, notReadyError(c)
	}
	if err := checkBackoff(g, now); err != nil {
		return nil, err
	}
	counts, _ := x.countMachines()
	s := &counts[at]
	if s.surplus > 0 {
		return nil, reject(codes.Unavailable,
			"pool %s: the deletion of surplus machines has not begun yet; retry later", g.Name)
	}
	next := int64(s.desired) + int64(delta)
	if next > int64(g.Max) {
		return nil, reject(codes.OutOfRange, "pool %s would have %d machines, but its maxSize is %d", g.Name, next,
			g.Max)
	}
	if c.MaxNodes > 0 {
		all := int64(c.OtherNodes) + int64(delta) + int64(max(s.desired, s.existing))
		for i := range counts {
			if i != at {
				all += int64(max(int(c.Groups[i].Target), counts[i].existing))
			}
		}
		if all > int64(c.MaxNodes) {
			return nil, reject(codes.ResourceExhausted,
				"the cluster would have %d nodes, but spec.limits.maxNodesTotal is %d", all, c.MaxNodes)
		}
	}
	change := Change{Pool: g.Name, Target: int32(next),
		Reason: fmt.Sprintf("Cluster Autoscaler requested %s more", formatMachines(int(delta)))}
	if g.Failure != nil {
		change.ClearFailed = max(g.Failure.Count, 0)
	}
	return []Change{change}, nil
}

// checkBackoff returns a *RejectedError while the group is in backoff after a failure.
func checkBackoff(g *Group, now time.Time) error {
	f := g.Failure
	if f == nil || !f.BackoffUntil.After(now) {
		return nil
	}
	code := codes.Unavailable
	if f.OutOfResources {
		code = codes.ResourceExhausted
	}
	return reject(code, "pool %s: no machines are created until %s because the last attempt failed: %s: %s",
		g.Name, f.BackoffUntil.UTC().Format(time.RFC3339), f.code(), f.message())
}

// PlanDecrease decides to cancel machines of a group that do not exist yet; delta is negative. It
// never removes an existing machine. If it can cancel only some of them, it cancels those. An error
// is a *RejectedError; Cluster Autoscaler then ends its loop for all groups.
func PlanDecrease(c *Cluster, id string, delta int32) ([]Change, error) {
	x := newIndex(c)
	at, err := x.group(id)
	if err != nil {
		return nil, err
	}
	g := &c.Groups[at]
	switch {
	case delta >= 0:
		return nil, reject(codes.InvalidArgument, "pool %s: invalid decrease by %d machines: must be negative", g.Name,
			delta)
	case c.UnreadyReason != nil:
		return nil, notReadyError(c)
	}
	counts, _ := x.countMachines()
	s := &counts[at]
	next := max(int64(g.Target)+int64(delta), int64(s.remaining))
	if next >= int64(g.Target) {
		if c.Busy {
			return nil, reject(codes.FailedPrecondition,
				"pool %s: no machine can be canceled: the machines that have not joined are being created", g.Name)
		}
		return nil, reject(codes.FailedPrecondition,
			"pool %s: no machine can be canceled: all of its %d machines exist", g.Name, s.remaining)
	}
	canceled := int(int64(g.Target) - next)
	// Failed machines are canceled last: Cluster Autoscaler means the other ones.
	return []Change{{Pool: g.Name, Target: int32(next),
		ClearFailed: int32(s.failed - min(s.failed, int(next)-s.remaining)),
		Reason:      fmt.Sprintf("Cluster Autoscaler canceled %s that did not join", formatMachines(canceled))}}, nil
}

// notReadyError returns the *RejectedError for a cluster whose state is uncertain.
func notReadyError(c *Cluster) error {
	return reject(codes.Unavailable, "the cluster cannot be scaled now: %s", truncate(c.UnreadyReason.Error(), 512))
}

func formatMachines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
