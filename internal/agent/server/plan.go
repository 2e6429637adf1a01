package server

import (
	"fmt"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// step is the remaining work of an operation. The zero step means that nothing remains.
type step struct {
	verb provisioner.Verb
	// from and desired are the range of the provisioner's request.
	from, desired uint32
	// leaving are the workers to delete, highest index first.
	leaving []provisioner.Worker
}

// nextStep returns the remaining work of an operation, given the existing workers. An operation
// that scales up never deletes a machine, and one that scales down never creates one. It returns an
// error if another client changed the number of workers during the operation.
func (r record) nextStep(workers []provisioner.Worker) (step, error) {
	found := uint32(len(workers))
	switch {
	case found == r.Desired:
		return step{}, nil
	case found < r.Desired && r.Desired > r.From:
		from, bound := freeRange(workers, r.Desired-found)
		return step{verb: provisioner.Create, from: from, desired: bound}, nil
	case found > r.Desired && r.Desired < r.From:
		// Workers are counted, not compared by index: a gap in the indexes does not reduce the
		// number of workers that remain.
		bound := workers[r.Desired].Index
		s := step{verb: provisioner.Delete, from: workers[found-1].Index + 1, desired: bound}
		for i := int(found) - 1; i >= int(r.Desired); i-- {
			s.leaving = append(s.leaving, workers[i])
		}
		return s, nil
	}
	return step{}, fmt.Errorf("another client changed the number of workers: found %d while scaling from %d to %d",
		found, r.From, r.Desired)
}

// freeRange returns the smallest range [from, bound) that contains the n lowest unused indexes.
// Workers must be sorted by index.
func freeRange(workers []provisioner.Worker, n uint32) (from, bound uint32) {
	index, i := uint32(0), 0
	for found := uint32(0); found < n; index++ {
		if i < len(workers) && workers[i].Index == index {
			i++
			continue
		}
		if found++; found == 1 {
			from = index
		}
	}
	return from, index
}
