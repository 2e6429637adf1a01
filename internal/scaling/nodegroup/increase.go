package nodegroup

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Increase decides on so many machines more for a group. Whatever is asked for, the group never
// gets more than its Max, nor the cluster more than its MaxNodes. Machines that could not be made
// last are forgiven once their time is over. An error is a *Refusal.
func Increase(c *Cluster, id string, delta int32, now time.Time) ([]Change, error) {
	at, err := newIndex(c).group(id)
	if err != nil {
		return nil, err
	}
	g := &c.Groups[at]
	switch {
	case delta < 1:
		return nil, refuse(codes.InvalidArgument, "pool %s can't be made bigger by %d machines: ask for one or more", g.Name, delta)
	case c.Mode == clusterv1.ScalingOff:
		return nil, refuse(codes.FailedPrecondition, "no machine is made: mode is Off")
	case c.Unready != nil:
		return nil, unready(c)
	}
	if err := backoff(g, now); err != nil {
		return nil, err
	}
	standings, _ := c.standings()
	s := &standings[at]
	if s.surplus > 0 {
		return nil, refuse(codes.Unavailable, "pool %s is being made smaller: ask again when that has begun", g.Name)
	}
	next := int64(s.wanted) + int64(delta)
	if next > int64(g.Max) {
		return nil, refuse(codes.OutOfRange, "pool %s would have %d machines, and its maxSize is %d", g.Name, next, g.Max)
	}
	if c.MaxNodes > 0 {
		all := int64(c.OtherNodes) + int64(delta) + int64(max(s.wanted, s.existing))
		for i := range standings {
			if i != at {
				all += int64(max(int(c.Groups[i].Target), standings[i].existing))
			}
		}
		if all > int64(c.MaxNodes) {
			return nil, refuse(codes.ResourceExhausted, "the cluster would have %d nodes, and limits.maxNodesTotal is %d", all, c.MaxNodes)
		}
	}
	change := Change{Pool: g.Name, Target: int32(next), Reason: fmt.Sprintf("Cluster Autoscaler asked for %s more", machines(int(delta)))}
	if g.Failure != nil {
		change.Forgive = max(g.Failure.Count, 0)
	}
	return []Change{change}, nil
}

// backoff is why nothing is made for a group now; nil: it may be.
func backoff(g *Group, now time.Time) error {
	f := g.Failure
	if f == nil || !f.Until.After(now) {
		return nil
	}
	code := codes.Unavailable
	if f.OutOfResources {
		code = codes.ResourceExhausted
	}
	return refuse(code, "nothing is made for pool %s until %s, as it failed before: %s: %s",
		g.Name, f.Until.UTC().Format(time.RFC3339), f.code(), f.message())
}

// Decrease decides on giving up machines of a group that are not there yet: delta is negative.
// No machine goes that exists. Where only some of them can be given up, those are. An error is a
// *Refusal; Cluster Autoscaler ends its loop on it, for all groups.
func Decrease(c *Cluster, id string, delta int32) ([]Change, error) {
	at, err := newIndex(c).group(id)
	if err != nil {
		return nil, err
	}
	g := &c.Groups[at]
	switch {
	case delta >= 0:
		return nil, refuse(codes.InvalidArgument, "pool %s can't be made smaller by %d machines: the number is to be negative", g.Name, delta)
	case c.Unready != nil:
		return nil, unready(c)
	}
	standings, _ := c.standings()
	s := &standings[at]
	next := max(int64(g.Target)+int64(delta), int64(s.staying))
	if next >= int64(g.Target) {
		if c.Busy {
			return nil, refuse(codes.FailedPrecondition, "no machine of pool %s can be given up: those that have not joined are being made", g.Name)
		}
		return nil, refuse(codes.FailedPrecondition, "no machine of pool %s can be given up: all of its %d exist", g.Name, s.staying)
	}
	given := int(int64(g.Target) - next)
	// Those that could not be made go last: who asks for it means the others.
	return []Change{{Pool: g.Name, Target: int32(next), Forgive: int32(s.failed - min(s.failed, int(next)-s.staying)),
		Reason: fmt.Sprintf("Cluster Autoscaler gave up %s that did not come", machines(given))}}, nil
}

// unready is the refusal of all that needs more to be known than is.
func unready(c *Cluster) error {
	return refuse(codes.Unavailable, "the cluster can't be scaled now: %s", cut(c.Unready.Error(), 512))
}

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
