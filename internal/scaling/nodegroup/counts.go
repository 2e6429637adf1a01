package nodegroup

// standing is how the machines of a group stand.
type standing struct {
	// existing machines; staying are those that are not being given up, and joined those of
	// them that are nodes.
	existing, staying, joined int
	// surplus machines are still to be given up: fewer are wanted, and no one has begun.
	surplus int
	// failed machines could not be made. They are in the target, but not in wanted.
	failed, wanted int
}

// coming is how many machines are wanted that are not there.
func (s *standing) coming() int { return max(s.wanted-s.staying, 0) }

// standings are those of all groups, and which of the workers are being given up.
func (c *Cluster) standings() (of []standing, leaving []bool) {
	of, leaving = make([]standing, len(c.Groups)), make([]bool, len(c.Workers))
	pools := make(map[string]int, len(c.Groups))
	for i := range c.Groups {
		pools[c.Groups[i].Name] = i
	}
	for i := range c.Workers {
		w := &c.Workers[i]
		leaving[i] = w.Deleting
		at, ok := pools[w.Pool]
		if !ok || w.Pool == "" {
			continue
		}
		s := &of[at]
		s.existing++
		if w.Deleting {
			continue
		}
		s.staying++
		if w.Node != "" {
			s.joined++
		}
	}
	for i := range c.Groups {
		g, s := &c.Groups[i], &of[i]
		target := max(int(g.Target), 0)
		s.failed = g.failed()
		// That machines could not be made is no reason to give up those that are nodes.
		s.wanted = max(target-s.failed, min(target, s.joined))
		c.giveUp(g.Name, s, leaving)
	}
	return of, leaving
}

// giveUp marks machines of a pool that are more than are wanted, from the end, and first those
// that have not joined.
func (c *Cluster) giveUp(pool string, s *standing, leaving []bool) {
	for _, joined := range []bool{false, true} {
		for i := len(c.Workers) - 1; i >= 0 && s.staying > s.wanted; i-- {
			w := &c.Workers[i]
			if w.Pool != pool || leaving[i] || (w.Node != "") != joined {
				continue
			}
			leaving[i] = true
			s.staying--
			s.surplus++
			if joined {
				s.joined--
			}
		}
	}
}

// failed is how many machines of the group could not be made.
func (g *Group) failed() int {
	if g.Failure == nil {
		return 0
	}
	return int(min(max(g.Failure.Count, 0), max(g.Target, 0)))
}
