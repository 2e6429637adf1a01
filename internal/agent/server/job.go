package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// errStopped is that of an operation which is left for the next start.
var errStopped = errors.New("the agent ends")

// patience is how often it is asked what there is before an operation fails for not knowing.
const patience = 5

// job is an operation at work.
type job struct {
	*cluster
	record
	// stop ends when the agent is to, hard when what runs is killed.
	stop, hard context.Context
	// workers are those that there were when they were counted last.
	workers []provisioner.Worker
}

// work does an operation to its end, and writes down how it ended. It leaves it as it is when the
// agent ends before.
func (c *cluster) work(stop, hard context.Context, r record) {
	j := &job{cluster: c, record: r, stop: stop, hard: hard}
	log := c.log.WithValues("id", r.ID, "direction", r.direction(), "from", r.From, "desired", r.Desired, "size", r.Size)
	log.Info("an operation is at work", "begun", r.Started)
	c.opts.Metrics.begun(c.Name)
	defer c.opts.Metrics.rests(c.Name)
	err := j.safely()
	if errors.Is(err, errStopped) {
		log.Info("the operation is left for the next start")
		return
	}
	failure, message := explain(err)
	if err == nil {
		message = fmt.Sprintf("there are %d workers", r.Desired)
	}
	ended := j.record.end(failure, clip(message), c.opts.Clock.Now())
	if c.saveAnyway(hard, ended) != nil {
		log.Info("how the operation ended could not be written down", "state", ended.State, "message", ended.Message)
		return
	}
	c.opts.Metrics.ended(c.Name, ended)
	log.Info("the operation has ended", "state", ended.State, "failure", ended.Failure, "message", ended.Message,
		"seconds", ended.Ended.Sub(ended.Started).Seconds())
}

// explain says how an operation failed that ended with an error.
func explain(err error) (agentpb.Operation_Failure, string) {
	if err == nil {
		return agentpb.Operation_FAILURE_UNSPECIFIED, ""
	}
	if _, ok := errors.AsType[*DrainError](err); ok {
		return agentpb.Operation_DRAIN, err.Error()
	}
	if e, ok := errors.AsType[*provisioner.Error](err); ok && e.Class == provisioner.OutOfResources {
		return agentpb.Operation_OUT_OF_RESOURCES, err.Error()
	}
	return agentpb.Operation_OTHER, err.Error()
}

// clip bounds a message.
func clip(s string) string {
	const most = 2048
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// safely does what is left to do. A panic is an error.
func (j *job) safely() (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.cluster.log.Error(fmt.Errorf("%v", p), "an operation panicked", "id", j.ID, "stack", string(debug.Stack()))
			err = errors.New("the agent itself is at fault; its log says more")
		}
	}()
	workers, err := j.count()
	if err != nil {
		return err
	}
	s, err := j.next(workers)
	if err != nil {
		return err
	}
	switch s.verb {
	case provisioner.Create:
		err = j.create(s)
	case provisioner.Delete:
		err = j.remove(s)
	}
	if err != nil {
		return err
	}
	// Those of an operation that was interrupted between the machines and their nodes go, too.
	gone, back := j.split(j.Leaving)
	j.uncordon(back)
	return j.dropNodes(gone)
}

// stopped is errStopped when the agent is to end, and otherwise the error.
func (j *job) stopped(err error) error {
	if j.stop.Err() != nil {
		return errStopped
	}
	return err
}

// count asks which workers there are, some times if need be.
func (j *job) count() ([]provisioner.Worker, error) {
	wait := firstPause
	for try := 1; ; try++ {
		workers, err := j.list(j.hard)
		switch {
		case err == nil:
			j.workers = workers
			return workers, nil
		case j.stop.Err() != nil:
			return nil, errStopped
		case try == patience:
			return nil, fmt.Errorf("which workers there are is not known: %w", err)
		}
		j.cluster.log.Error(err, "the provisioner does not say which workers there are; asking again")
		if j.pause(j.stop, wait) != nil {
			return nil, errStopped
		}
		wait = min(2*wait, longestPause)
	}
}

// create has machines made.
func (j *job) create(s step) error {
	if j.stop.Err() != nil {
		return errStopped
	}
	missing := j.Desired - j.From
	j.tell(fmt.Sprintf("making %d machines of size %s", missing, j.Size))
	if err := j.provision(s); err != nil {
		return err
	}
	return j.verify("made")
}

// provision has the provisioner take a step. After an error it says how many workers there are.
func (j *job) provision(s step) error {
	within := j.opts.CreateWithin
	if s.verb == provisioner.Delete {
		within = j.opts.DeleteWithin
	}
	ctx, cancel := context.WithTimeout(j.hard, within)
	defer cancel()
	_, err := j.Runner.Run(ctx, provisioner.Request{Operation: s.verb, ID: j.ID, Cluster: j.Cluster.Cluster,
		From: s.from, Desired: s.desired, Size: j.Size})
	if err == nil {
		return nil
	}
	if j.hard.Err() != nil {
		return errStopped // it was killed for that
	}
	workers, unknown := j.count()
	if unknown != nil {
		return j.stopped(err)
	}
	return fmt.Errorf("there are %d workers, and there were to be %d: %w", len(workers), j.Desired, err)
}

// verify sees that there are as many workers as the provisioner made believe.
func (j *job) verify(did string) error {
	workers, err := j.count()
	if err != nil {
		return err
	}
	if have := uint32(len(workers)); have != j.Desired {
		return fmt.Errorf("the provisioner answered that the machines are %s, and there are %d workers, not %d", did, have, j.Desired)
	}
	return nil
}

// remove drains the nodes of the workers that go, has their machines deleted and deletes their
// Node objects.
func (j *job) remove(s step) error {
	nodes, err := j.nodesOf(s.leaving)
	if err != nil {
		return err
	}
	if err := j.drainAll(nodes); err != nil {
		return err
	}
	// From here on it is known which nodes go, also if the machines are gone by the next start.
	if err := j.noteLeaving(refs(nodes)); err != nil {
		return err
	}
	j.tell(fmt.Sprintf("deleting %d machines", len(s.leaving)))
	err = j.provision(s)
	if err == nil {
		err = j.verify("gone")
	}
	if err != nil && !errors.Is(err, errStopped) {
		err = j.settle(refs(nodes), err)
	}
	return err
}

// noteLeaving writes down the nodes whose machines are about to be deleted.
func (j *job) noteLeaving(leaving []nodeRef) error {
	for _, ref := range leaving {
		if !slices.Contains(j.Leaving, ref) {
			j.Leaving = append(slices.Clone(j.Leaving), ref)
		}
	}
	if j.saveAnyway(j.stop, j.record) != nil {
		return errStopped
	}
	return nil
}

// settle leaves no node cordoned whose machine stays, and none behind whose machine is gone, after
// machines could not be deleted. It returns why they could not.
func (j *job) settle(nodes []nodeRef, why error) error {
	if _, err := j.count(); err != nil {
		j.cluster.log.Error(err, "which machines are gone is not known; their nodes stay cordoned", "id", j.ID)
		return j.stopped(why)
	}
	gone, back := j.split(nodes)
	j.uncordon(back)
	if err := j.dropNodes(gone); err != nil {
		j.cluster.log.Error(err, "nodes of machines that are gone are left", "id", j.ID)
	}
	return j.stopped(why)
}
