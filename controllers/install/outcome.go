package install

import (
	"errors"
	"fmt"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Reasons of a KsctlInstall's conditions beside those of the skeleton.
const (
	// EmptyRenderReason: the stack renders nothing, and something is installed.
	EmptyRenderReason = "EmptyRender"
	// OwnedReason: objects exist that belong to somebody else.
	OwnedReason = "OwnedByAnother"
	// ContestedReason: another writer keeps changing an object, which is left alone for a while.
	ContestedReason = "Contested"
	// InvalidObjectReason: a manifest can never be applied as it is.
	InvalidObjectReason = "InvalidObject"
	// ValuesNotFoundReason: a ConfigMap, a Secret or a key of it is missing.
	ValuesNotFoundReason = "ValuesNotFound"
	// ClusterValuesReason: an expression of valuesFrom gives no value for the cluster.
	ClusterValuesReason = "InvalidClusterValues"
	// DependencyCycleReason: installs depend on each other.
	DependencyCycleReason = "DependencyCycle"
	// InvalidDependencyReason: an entry of spec.dependsOn can't be what it is.
	InvalidDependencyReason = "InvalidDependency"
	// DeletionsHeldReason: more would be deleted than spec.guard lets go unapproved.
	DeletionsHeldReason = "DeletionsHeld"
	// PreRemoveFailedReason: a Job failed that runs before anything is removed.
	PreRemoveFailedReason = "PreRemoveFailed"
	// AbandonedReason: the install went and left objects behind, as it was told to.
	AbandonedReason = "Abandoned"
	// RemovedByRequestReason: something is not installed because a KsctlRemove asks for that.
	RemovedByRequestReason = "RemovedByRequest"
	// DependentsReason: others depend on an install that is being removed.
	DependentsReason = "DependentsExist"
	// SecretsRefusedReason: what is to be published has Secrets, or may have content of them or of what is encrypted.
	SecretsRefusedReason = "SecretsRefused"
	// PublishingFailedReason: a request or the disk failed.
	PublishingFailedReason = "PublishingFailed"
	// PublishingDisabledReason: the controller has no server for what is published.
	PublishingDisabledReason = "PublishingDisabled"
	// StillInstalledReason: an install that is only to be published has objects here.
	StillInstalledReason = "StillInstalled"
)

// outcome says how a pass ended and writes the components into the status.
func (o *owner) outcome(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	st := &o.req.Object.Status
	if rep.Unsynced == nil {
		o.unsyncedSince = time.Time{}
	}
	st.Components = o.components(rep.Plan.Components)
	switch {
	case rep.Unsynced != nil && o.syncsSoon(now):
		return reconcile.Deferred{Until: o.unsyncedSince.Add(syncWithin)}
	case rep.Unsynced != nil:
		return reconcile.Waiting{On: rep.Unsynced.Error(), Reason: reconcile.IndexStaleReason, Until: rep.RetryAt, Revision: revision}
	case o.askedLeft() > 0 && len(o.going()) == 0 && settledBut(rep, o.lacking(rep)):
		return o.held()
	case len(o.going()) > 0 && !componentFailed(rep):
		return o.removing(rep, o.askedLeft(), now)
	case failed(rep):
		return o.failure(rep, revision, now)
	case isBlocked(rep):
		return blocked(o.blocked, revision)
	case held(rep) != nil:
		return reconcile.Stalled{Err: held(rep), Reason: DeletionsHeldReason, Revision: revision}
	case !settledBut(rep, o.lacking(rep)):
		return o.waiting(rep, revision, now)
	}
	o.waitingFor, o.since = "", time.Time{}
	// What was done counts until the status that was read says so.
	o.acted = o.acted && st.LastAppliedRevision != revision
	minor := !o.acted && st.LastAppliedRevision != "" && st.LastAppliedRevision != revision && isReady(o.req.Object)
	st.LastAppliedRevision = revision
	objects := 0
	var drifted []string
	for _, c := range rep.Plan.Components {
		objects += c.Objects
		drifted = append(drifted, c.Drifted...)
	}
	message := fmt.Sprintf("Applied revision %s: %s %s, %d components, %d objects ready", revision,
		o.req.Object.Spec.Stack, st.StackVersion, len(rep.Plan.Components), objects)
	if mode := o.Policies().Drift; len(drifted) > 0 && mode == appsv1.DriftWarn {
		message += "; changed by others and left so: " + list(drifted)
	}
	if !o.removals.returns().IsZero() {
		return o.held()
	}
	if len(o.removals) > 0 {
		return reconcile.Done{Reason: RemovedByRequestReason, Message: message + o.removedNames(o.lacking(rep)), Revision: revision}
	}
	return reconcile.Done{Message: message, Revision: revision, Minor: minor}
}

// syncWithin is how long the index may take to know a kind before it is said:
// after a start, and when a kind is used for the first time, it takes moments.
const syncWithin = 30 * time.Second

func (o *owner) syncsSoon(now time.Time) bool {
	if o.unsyncedSince.IsZero() {
		o.unsyncedSince = now
	}
	return now.Sub(o.unsyncedSince) < syncWithin
}

func failed(rep *engine.Report) bool {
	return len(rep.Errors) > 0 || componentFailed(rep)
}

func componentFailed(rep *engine.Report) bool {
	for _, c := range rep.Plan.Components {
		if c.Failed {
			return true
		}
	}
	return false
}

// failure names what failed, each thing once.
func (o *owner) failure(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	err := errors.New(messages(rep))
	reason, terminal := failureReason(rep)
	if terminal && rep.RetryAt.IsZero() {
		return reconcile.Stalled{Err: err, Reason: reason, Revision: revision}
	}
	out := reconcile.Retry{Err: err, Reason: reason, Revision: revision}
	if !rep.RetryAt.IsZero() {
		out.After = max(rep.RetryAt.Sub(now), time.Millisecond)
	}
	return out
}

// failureReason is the most telling reason of what failed; terminal when
// nothing but a change of the stack mends it.
func failureReason(rep *engine.Report) (reason string, terminal bool) {
	var owned *engine.OwnedError
	for _, err := range rep.Errors {
		if errors.As(err, &owned) {
			return OwnedReason, false
		}
	}
	if contested(rep.Errors) {
		return ContestedReason, false
	}
	terminal = len(rep.Errors) == 0
	for _, w := range rep.Plan.Waits {
		switch w.Reason {
		case engine.Owned:
			return OwnedReason, false
		case engine.Invalid:
			reason = InvalidObjectReason
		}
	}
	if reason == "" {
		return "", false
	}
	return reason, terminal
}

// contested is true when there is nothing wrong but that.
func contested(errs []error) bool {
	var by *engine.ContestedError
	for _, err := range errs {
		if !errors.As(err, &by) {
			return false
		}
	}
	return len(errs) > 0
}

func messages(rep *engine.Report) string {
	var out []string
	for _, c := range rep.Plan.Components {
		if c.Failed {
			out = append(out, fmt.Sprintf("component %q: %s", c.Name, c.Message))
		}
	}
	if len(out) == 0 {
		for _, err := range rep.Errors {
			out = append(out, err.Error())
		}
	}
	return list(out)
}

// waiting says what the next step waits for, and since when too long.
func (o *owner) waiting(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	wave, on := waitsFor(rep)
	if wave != o.waitingFor || o.since.IsZero() || len(rep.Changes) > 0 {
		o.waitingFor, o.since = wave, now
	}
	until := o.since.Add(reconcile.Timeout(&o.req.Object.Spec.Schedule))
	out := reconcile.Waiting{On: on, Revision: revision}
	switch {
	case preRemoveFailed(rep):
		out.Late, out.Reason = true, PreRemoveFailedReason
	case unhealthy(rep):
		// It may pass: a Deployment's does when its pods come up after all.
		out.Late, out.Reason = true, fluxmeta.HealthCheckFailedReason
	case now.Before(until):
		out.Until = until
	default:
		out.Late = true
		out.On = fmt.Sprintf("not ready within %s: %s", reconcile.Timeout(&o.req.Object.Spec.Schedule), on)
	}
	if !rep.RetryAt.IsZero() && (out.Until.IsZero() || rep.RetryAt.Before(out.Until)) {
		out.Until = rep.RetryAt
	}
	return out
}

func unhealthy(rep *engine.Report) bool {
	for _, c := range rep.Plan.Components {
		if c.Unhealthy {
			return true
		}
	}
	return false
}

// waitsFor names the components that are not ready and wait for no other one.
func waitsFor(rep *engine.Report) (wave, on string) {
	var names, out []string
	for _, c := range rep.Plan.Components {
		if !c.Ready {
			names = append(names, c.Name)
			if c.Message != "" {
				out = append(out, fmt.Sprintf("component %q: %s", c.Name, c.Message))
			}
		}
	}
	for _, w := range rep.Plan.Waits {
		if w.Item == nil && w.Message != "" {
			out = append(out, w.Message)
		}
	}
	return strings.Join(names, ","), list(out)
}

// held is what a plan holds until it is approved; nil when nothing.
func held(rep *engine.Report) (err *engine.HeldError) {
	for _, w := range rep.Plan.Waits {
		if errors.As(w.Err, &err) {
			return err
		}
	}
	return nil
}
