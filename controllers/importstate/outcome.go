package importstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// Reasons of an ImportState's conditions beside those of sources and of stacks/sops.
const (
	// NotFoundReason: the source has no such file or folder.
	NotFoundReason = "PathNotFound"
	// InvalidStateReason: a file is no state of ksctl, or one that ksctl could not work with.
	InvalidStateReason = "InvalidState"
	// PlaintextReason: secrets are readable in the source.
	PlaintextReason = "PlaintextSecrets"
	// SecretNotFoundReason: the Secret with the keys, or that of the agent, does not exist.
	SecretNotFoundReason = "SecretNotFound"
	// ConflictReason: the store has another state of a cluster, or that of an agent may have.
	ConflictReason = "StateConflict"
	// ExternalStorageReason: ksctl keeps the states in a MongoDB.
	ExternalStorageReason = "ExternalStorage"
	// StoreFullReason: the store has no room.
	StoreFullReason = "StoreFull"
	// StoreContendedReason: somebody else kept writing to the store.
	StoreContendedReason = "StoreContended"
	// DryRunReason: the status says what would be done.
	DryRunReason = "DryRun"
	// AgentSecretInvalidReason: the Secret of the agent lacks a key, or holds what can't be used.
	AgentSecretInvalidReason = "AgentSecretInvalid"
	// AgentAddressRefusedReason: the address of the agent is none, or is never dialled.
	AgentAddressRefusedReason = "AgentAddressRefused"
	// AgentUnreachableReason: the agent does not answer, or is not who it should be.
	AgentUnreachableReason = "AgentUnreachable"
	// AgentFailedReason: the agent answers that it failed.
	AgentFailedReason = "AgentFailed"
)

// place is where an import brings what it has: ksctl's store in a namespace, or an agent at
// an address.
type place struct{ namespace, agent string }

// placeOf is where an import has brought something; the zero value: nowhere yet.
func placeOf(status *v1alpha1.ImportStateStatus) place { return place{status.Store, status.Agent} }

// String is what messages call it.
func (p place) String() string {
	if p.agent != "" {
		return "the agent at " + p.agent
	}
	return "ksctl's store in namespace " + p.namespace
}

// readError says what is wrong with what is imported. A person has to mend it.
type readError struct {
	reason string
	err    error
}

func fail(reason, format string, args ...any) error {
	return &readError{reason: reason, err: fmt.Errorf(format, args...)}
}

// Error implements error.
func (e *readError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *readError) Unwrap() error { return e.err }

// problem is why a file is not imported.
type problem struct {
	reason, message string
	// terminal is true when another try would not help.
	terminal bool
}

// problemOf an error of one file.
func problemOf(err error) problem {
	var (
		read   *readError
		cipher *sops.Error
		parse  *stacks.Error
	)
	switch {
	case errors.As(err, &read):
		return problem{read.reason, err.Error(), true}
	case errors.As(err, &cipher):
		return problem{string(cipher.Reason), err.Error(), cipher.Terminal()}
	case errors.As(err, &parse):
		return problem{InvalidStateReason, err.Error(), true}
	}
	return problem{fluxmeta.ReconciliationFailedReason, err.Error(), false}
}

// failed is the outcome of an error that keeps everything back.
func failed(err error, revision string) reconcile.Outcome {
	var read *readError
	var cipher *sops.Error
	if !errors.As(err, &read) && !errors.As(err, &cipher) {
		return content.RenderOutcome(err, revision) // of fetching
	}
	return problemOf(err).outcome(revision)
}

func (p problem) outcome(revision string) reconcile.Outcome {
	if p.terminal {
		return reconcile.Stalled{Err: errors.New(p.message), Reason: p.reason, Revision: revision}
	}
	return reconcile.Retry{Err: errors.New(p.message), Reason: p.reason, Revision: revision}
}

// outcome says how an import stands whose plan was carried out as far as it may be. What is
// wrong is told before what is right.
func (p *plan) outcome(want wishes, to place, revision string, dryRun bool) reconcile.Outcome {
	if len(want.problems) > 0 {
		first := slices.MinFunc(want.problems, func(a, b problem) int { return cmp.Compare(rank(a.terminal), rank(b.terminal)) })
		var messages []string
		for _, one := range want.problems {
			messages = append(messages, one.message)
		}
		first.message = statestore.Lines(messages)
		return first.outcome(revision)
	}
	// Each of them, also one that has no line, as another file has a good state under its key.
	if len(want.refused) > 0 {
		var messages []string
		for _, row := range want.refused {
			messages = append(messages, row.Key+": "+row.Message)
		}
		return reconcile.Stalled{Err: errors.New(statestore.Lines(messages)), Reason: InvalidStateReason, Revision: revision}
	}
	for _, bad := range []struct {
		action v1alpha1.StateAction
		reason string
	}{
		{v1alpha1.StateFull, StoreFullReason}, {v1alpha1.StateConflict, ConflictReason}, {v1alpha1.StateExternal, ExternalStorageReason},
	} {
		if messages := p.saying(bad.action); len(messages) > 0 {
			if bad.action == v1alpha1.StateFull {
				messages = []string{p.full.Error()}
			}
			return reconcile.Stalled{Err: errors.New(statestore.Lines(messages)), Reason: bad.reason, Revision: revision}
		}
	}
	if dryRun {
		return reconcile.Done{Message: p.would(to), Reason: DryRunReason, Revision: revision}
	}
	return reconcile.Done{Message: p.message(to), Revision: revision}
}

func rank(terminal bool) int {
	if terminal {
		return 1
	}
	return 0 // is tried again, and with it everything
}

// saying are the messages of entries with an action.
func (p *plan) saying(action v1alpha1.StateAction) (out []string) {
	for _, c := range p.clusters {
		if c.Action == action {
			out = append(out, c.Key+": "+c.Message)
		}
	}
	for _, c := range p.credentials {
		if c.Action == action {
			out = append(out, "credentials of "+c.Cloud+": "+c.Message)
		}
	}
	return out
}

// count of the entries with one of some actions.
func (p *plan) count(actions ...v1alpha1.StateAction) (clusters, credentials int) {
	for _, c := range p.clusters {
		if slices.Contains(actions, c.Action) {
			clusters++
		}
	}
	for _, c := range p.credentials {
		if slices.Contains(actions, c.Action) {
			credentials++
		}
	}
	return clusters, credentials
}

// message of an import that is as it is wanted. It depends on what stands in the status
// alone, so that nothing is written while that stays.
func (p *plan) message(to place) string {
	out := statestore.Said(p.count(v1alpha1.StateInSync, v1alpha1.StateChangedSince)) + " in " + to.String()
	if to.agent != "" {
		out = statestore.Said(p.count(v1alpha1.StateSent)) + " sent to " + to.String()
	}
	if n, m := p.count(v1alpha1.StateChangedSince); n+m > 0 {
		out += "; changed there since: " + statestore.Said(n, m)
	}
	if n, m := p.count(v1alpha1.StateRemovedSince); n+m > 0 {
		out += "; taken out there since: " + statestore.Said(n, m)
	}
	if n, m := p.count(v1alpha1.StateLeft); n+m > 0 {
		out += "; no more in the source: " + statestore.Said(n, m)
	}
	return out + p.room()
}

// room warns of a store that will be full.
func (p *plan) room() string {
	if p.bytes < state.WarnStoreBytes {
		return ""
	}
	// In steps, for whoever else writes there changes it all the time.
	return fmt.Sprintf("; its states take %d %% of what a ConfigMap can hold: further ones will be refused", p.bytes*20/state.MaxStoreBytes*5)
}

// would says what an import would do.
func (p *plan) would(to place) string {
	if to.agent != "" {
		return fmt.Sprintf("nothing is sent (spec.dryRun); to %s it would send %s%s", to,
			statestore.Said(p.count(v1alpha1.StateCreate, v1alpha1.StateUpdate)), p.room())
	}
	return fmt.Sprintf("nothing is written (spec.dryRun); in %s it would create %s and overwrite %s%s",
		to, statestore.Said(p.count(v1alpha1.StateCreate)), statestore.Said(p.count(v1alpha1.StateUpdate)), p.room())
}
