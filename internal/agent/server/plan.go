package server

import (
	"fmt"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// step is what is left to do of an operation. The zero step is nothing.
type step struct {
	verb provisioner.Verb
	// from and desired are what the provisioner is asked for.
	from, desired uint32
	// leaving are the workers that go, the last one first.
	leaving []provisioner.Worker
}

// strayError says that somebody else has changed the number of workers meanwhile.
type strayError struct{ from, desired, found uint32 }

func (e *strayError) Error() string {
	return fmt.Sprintf("there are %d workers by now, and there were %d to become %d: somebody else has changed that", e.found, e.from, e.desired)
}

// next is what is left to do of an operation, by the workers that there are. An operation that
// was to make machines never deletes one, and the other way round.
func (r record) next(workers []provisioner.Worker) (step, error) {
	found := uint32(len(workers))
	switch {
	case found == r.Desired:
		return step{}, nil
	case found < r.Desired && r.Desired > r.From:
		from, bound := free(workers, r.Desired-found)
		return step{verb: provisioner.Create, from: from, desired: bound}, nil
	case found > r.Desired && r.Desired < r.From:
		// By number, not by place: where a place is empty, one more of those behind it stays.
		bound := workers[r.Desired].Index
		s := step{verb: provisioner.Delete, from: workers[found-1].Index + 1, desired: bound}
		for i := int(found) - 1; i >= int(r.Desired); i-- {
			s.leaving = append(s.leaving, workers[i])
		}
		return s, nil
	}
	return step{}, &strayError{r.From, r.Desired, found}
}

// free bounds the first n places that no worker has. Workers are sorted by their place.
func free(workers []provisioner.Worker, n uint32) (from, bound uint32) {
	place, i := uint32(0), 0
	for found := uint32(0); found < n; place++ {
		if i < len(workers) && workers[i].Index == place {
			i++
			continue
		}
		if found++; found == 1 {
			from = place
		}
	}
	return from, place
}
