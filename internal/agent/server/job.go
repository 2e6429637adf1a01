package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// errStopped interrupts an operation that resumes at the next start.
var errStopped = errors.New("the agent is shutting down")

// maxAttempts is the number of attempts of a request before the operation fails.
const maxAttempts = 5

// job is a running operation.
type job struct {
	*clusterScaler
	record
	// stopCtx ends when the agent shuts down, killCtx when running provisioners are killed.
	stopCtx, killCtx context.Context
	// workers are the workers of the last countWorkers.
	workers []provisioner.Worker
}

// execute runs an operation to its end and records the result. If the agent shuts down before, the
// operation stays recorded as running.
func (c *clusterScaler) execute(stopCtx, killCtx context.Context, r record) {
	j := &job{clusterScaler: c, record: r, stopCtx: stopCtx, killCtx: killCtx}
	log := c.log.WithValues("id", r.ID, "direction", r.direction(), "from", r.From, "desired", r.Desired, "size",
		r.Size)
	log.Info("executing an operation", "begun", r.Started)
	running := c.opts.Metrics.running.WithLabelValues(c.Name)
	running.Set(1)
	defer running.Set(0)
	err := j.executeSafely()
	if errors.Is(err, errStopped) {
		log.Info("interrupted the operation; it resumes at the next start")
		return
	}
	failure, message := agentpb.Operation_FAILURE_UNSPECIFIED, fmt.Sprintf("the cluster has %d workers", r.Desired)
	if err != nil {
		failure, message = failureOf(err), err.Error()
	}
	ended := j.finish(failure, truncate(message), time.Now())
	if c.saveWithRetries(killCtx, ended) != nil {
		log.Info("the result of the operation could not be recorded", "state", ended.State, "message", ended.Message)
		return
	}
	c.opts.Metrics.operationEnded(c.Name, ended)
	log.Info("operation ended", "state", ended.State, "failure", ended.Failure, "message", ended.Message,
		"seconds", ended.Ended.Sub(ended.Started).Seconds())
}

// failureOf returns the failure for the error of an operation.
func failureOf(err error) agentpb.Operation_Failure {
	if _, ok := errors.AsType[*drainError](err); ok {
		return agentpb.Operation_DRAIN
	}
	if e, ok := errors.AsType[*provisioner.Error](err); ok && e.Class == provisioner.OutOfResources {
		return agentpb.Operation_OUT_OF_RESOURCES
	}
	return agentpb.Operation_OTHER
}

// truncate limits the length of a message.
func truncate(s string) string {
	const maxChars = 2048
	if r := []rune(s); len(r) > maxChars {
		return string(r[:maxChars]) + "…"
	}
	return s
}

// executeSafely executes the remaining work of the operation. It converts a panic to an error.
func (j *job) executeSafely() (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.log.Error(fmt.Errorf("%v", p), "an operation panicked", "id", j.ID, "stack", string(debug.Stack()))
			err = errors.New("internal error of the agent: see its log")
		}
	}()
	if err := j.countWorkers(); err != nil {
		return err
	}
	s, err := j.nextStep(j.workers)
	if err != nil {
		return err
	}
	switch s.verb {
	case provisioner.Create:
		err = j.createMachines(s)
	case provisioner.Delete:
		err = j.removeMachines(s)
	}
	if err != nil {
		return err
	}
	// This also deletes the nodes of an earlier run that was interrupted after it deleted machines
	// and before it deleted their nodes.
	return j.settleNodes(j.Leaving)
}

// stoppedOr returns errStopped if the agent is shutting down, and err otherwise.
func (j *job) stoppedOr(err error) error {
	if j.stopCtx.Err() != nil {
		return errStopped
	}
	return err
}

// countWorkers lists the workers and stores them in j.workers.
func (j *job) countWorkers() error {
	return j.withRetries("listing workers", func() (err error) {
		j.workers, err = j.listWorkers(j.killCtx)
		return err
	}, func(err error) { j.log.Error(err, "listing workers failed; retrying") })
}

// createMachines creates the missing machines.
func (j *job) createMachines(s step) error {
	if j.stopCtx.Err() != nil {
		return errStopped
	}
	missing := j.Desired - j.From
	j.setProgress(fmt.Sprintf("creating %d machines of size %s", missing, j.Size))
	if err := j.runProvisioner(s); err != nil {
		return err
	}
	return j.verifyCount("created")
}

// runProvisioner runs the provisioner for a step. Its error includes the number of workers after a
// failure.
func (j *job) runProvisioner(s step) error {
	timeout := j.opts.CreateTimeout
	if s.verb == provisioner.Delete {
		timeout = j.opts.DeleteTimeout
	}
	ctx, cancel := context.WithTimeout(j.killCtx, timeout)
	defer cancel()
	_, err := j.Runner.Run(ctx, provisioner.Request{Operation: s.verb, ID: j.ID, Cluster: j.Cluster.Cluster,
		From: s.from, Desired: s.desired, Size: j.Size})
	if err == nil {
		return nil
	}
	if j.killCtx.Err() != nil {
		return errStopped // the shutdown killed the provisioner
	}
	if j.countWorkers() != nil {
		return j.stoppedOr(err)
	}
	return fmt.Errorf("the cluster has %d workers instead of %d: %w", len(j.workers), j.Desired, err)
}

// verifyCount checks that the number of workers matches the success that the provisioner reported.
func (j *job) verifyCount(did string) error {
	if err := j.countWorkers(); err != nil {
		return err
	}
	if have := uint32(len(j.workers)); have != j.Desired {
		return fmt.Errorf("the provisioner reported the machines as %s, but the cluster has %d workers instead of %d",
			did, have, j.Desired)
	}
	return nil
}

// removeMachines drains the nodes of the leaving workers and deletes their machines. After a
// failure it also cleans up their nodes; after success executeSafely deletes them.
func (j *job) removeMachines(s step) error {
	nodes, err := j.findNodes(s.leaving)
	if err != nil {
		return err
	}
	if err := j.drainAll(nodes); err != nil {
		return err
	}
	// Record the nodes before their machines are deleted: after a restart the deleted machines
	// can't be listed anymore.
	refs := nodeRefs(nodes)
	if err := j.recordLeaving(refs); err != nil {
		return err
	}
	j.setProgress(fmt.Sprintf("deleting %d machines", len(s.leaving)))
	err = j.runProvisioner(s)
	if err == nil {
		err = j.verifyCount("deleted")
	}
	if err != nil && !errors.Is(err, errStopped) {
		err = j.cleanUpNodes(refs, err)
	}
	return err
}

// recordLeaving records the nodes whose machines are about to be deleted.
func (j *job) recordLeaving(leaving []nodeRef) error {
	for _, ref := range leaving {
		if !slices.Contains(j.Leaving, ref) {
			j.Leaving = append(slices.Clone(j.Leaving), ref)
		}
	}
	if j.saveWithRetries(j.stopCtx, j.record) != nil {
		return errStopped
	}
	return nil
}

// cleanUpNodes runs after machines could not be deleted. It uncordons the nodes whose machines
// remain, deletes the nodes whose machines are deleted, and returns the reason of the failure.
func (j *job) cleanUpNodes(nodes []nodeRef, reason error) error {
	if err := j.countWorkers(); err != nil {
		j.log.Error(err, "listing workers failed; the nodes of the machines to delete stay cordoned", "id", j.ID)
		return j.stoppedOr(reason)
	}
	if err := j.settleNodes(nodes); err != nil {
		j.log.Error(err, "deleting the nodes of deleted machines failed", "id", j.ID)
	}
	return j.stoppedOr(reason)
}
