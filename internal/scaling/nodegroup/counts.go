package nodegroup

// groupCounts are the numbers of machines of a group.
type groupCounts struct {
	// existing counts all machines, remaining those that are not being removed, and joined the
	// remaining ones that have a Node.
	existing, remaining, joined int
	// surplus counts the machines that exceed the desired number and whose deletion has not begun.
	surplus int
	// failed counts the machines that could not be created. The target includes them, desired does
	// not.
	failed, desired int
}

// missing returns how many desired machines do not exist.
func (s *groupCounts) missing() int { return max(s.desired-s.remaining, 0) }

// countMachines returns the counts of each group, and for each worker whether it is being removed.
func (x *index) countMachines() (counts []groupCounts, removing []bool) {
	counts, removing = make([]groupCounts, len(x.Groups)), make([]bool, len(x.Workers))
	for i := range x.Workers {
		w := &x.Workers[i]
		removing[i] = w.Deleting
		at, ok := x.groupByPool[w.Pool]
		if !ok || w.Pool == "" {
			continue
		}
		s := &counts[at]
		s.existing++
		if w.Deleting {
			continue
		}
		s.remaining++
		if w.Node != "" {
			s.joined++
		}
	}
	for i := range x.Groups {
		g, s := &x.Groups[i], &counts[i]
		target := max(int(g.Target), 0)
		s.failed = g.failedCount()
		// A failure to create machines never removes machines that have joined.
		s.desired = max(target-s.failed, min(target, s.joined))
		x.markSurplus(g.Name, s, removing)
	}
	return counts, removing
}

// markSurplus marks the machines of a pool beyond the desired number as being removed: first those
// that have not joined, each time from the end of the array.
func (c *Cluster) markSurplus(pool string, s *groupCounts, removing []bool) {
	for _, joined := range []bool{false, true} {
		for i := len(c.Workers) - 1; i >= 0 && s.remaining > s.desired; i-- {
			w := &c.Workers[i]
			if w.Pool != pool || removing[i] || (w.Node != "") != joined {
				continue
			}
			removing[i] = true
			s.remaining--
			s.surplus++
			if joined {
				s.joined--
			}
		}
	}
}

// failedCount returns the number of failed machines of the group, bounded by its target.
func (g *Group) failedCount() int {
	if g.Failure == nil {
		return 0
	}
	return int(min(max(g.Failure.Count, 0), max(g.Target, 0)))
}
