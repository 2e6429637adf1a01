package importstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// destination is where an import writes to: the ksctl store in a namespace, or an agent at an
// address.
type destination struct{ namespace, agent string }

// destinationOf returns the destination that an import has written to; the zero value if it has not
// yet.
func destinationOf(status *v1alpha1.ImportStateStatus) destination {
	return destination{status.Store, status.Agent}
}

// String returns the destination for messages.
func (p destination) String() string {
	if p.agent != "" {
		return "the agent at " + p.agent
	}
	return "the ksctl store in namespace " + p.namespace
}

// problemOf classifies an error about one file: the reason why it is not imported.
func problemOf(err error) *reconcile.StepError {
	out := &reconcile.StepError{Reason: fluxmeta.ReconciliationFailedReason, Class: reconcile.TransientClass, Err: err}
	var (
		step   *reconcile.StepError
		cipher *sops.Error
		parse  *stacks.Error
	)
	switch {
	case errors.As(err, &step):
		out.Reason, out.Class = step.Reason, step.Class
	case errors.As(err, &cipher):
		out.Reason = string(cipher.Reason)
		if cipher.Terminal() {
			out.Class = reconcile.TerminalClass
		}
	case errors.As(err, &parse):
		out.Reason, out.Class = v1alpha1.InvalidStateReason, reconcile.TerminalClass
	}
	return out
}

// outcome returns the outcome of an import after its plan was executed as far as possible. Errors
// take precedence over success.
func (p *importPlan) outcome(want desired, dest destination, revision string, dryRun bool) reconcile.Outcome {
	if len(want.problems) > 0 {
		// A retry comes first, because it repeats the whole import.
		first := slices.MaxFunc(want.problems, func(a, b *reconcile.StepError) int {
			return cmp.Compare(a.Class, b.Class)
		})
		var messages []string
		for _, fileProblem := range want.problems {
			messages = append(messages, fileProblem.Error())
		}
		return reconcile.OutcomeOf(&reconcile.StepError{Reason: first.Reason, Class: first.Class,
			Err: errors.New(statestore.JoinMessages(messages))}, revision)
	}
	// Report every invalid state, also one without a row because another file has a valid state
	// with the same key.
	if len(want.invalid) > 0 {
		return reconcile.Stalled{Err: errors.New(statestore.JoinMessages(messagesByKey(want.invalid))),
			Reason: v1alpha1.InvalidStateReason, Revision: revision}
	}
	for _, failure := range []struct {
		action v1alpha1.StateAction
		reason string
	}{
		// A conflict can be overwritten, but not a store that ksctl does not use.
		{v1alpha1.StateExternal, v1alpha1.ExternalStorageReason}, {v1alpha1.StateFull, v1alpha1.StoreFullReason},
		{v1alpha1.StateConflict, v1alpha1.StateConflictReason},
	} {
		if messages := p.messagesOf(failure.action); len(messages) > 0 {
			if failure.action == v1alpha1.StateFull {
				messages = []string{p.sizeErr.Error()}
			}
			return reconcile.Stalled{Err: errors.New(statestore.JoinMessages(messages)), Reason: failure.reason,
				Revision: revision}
		}
	}
	if dryRun {
		return reconcile.Done{Message: p.dryRunMessage(dest), Reason: v1alpha1.DryRunReason, Revision: revision}
	}
	return reconcile.Done{Message: p.doneMessage(dest), Revision: revision}
}

// messagesByKey returns one message for each key: several files may have invalid states of a
// cluster.
func messagesByKey(rows []v1alpha1.ImportedCluster) (out []string) {
	var keys []string
	messages := map[string][]string{}
	for _, row := range rows {
		if len(messages[row.Key]) == 0 {
			keys = append(keys, row.Key)
		}
		if !slices.Contains(messages[row.Key], row.Message) {
			messages[row.Key] = append(messages[row.Key], row.Message)
		}
	}
	for _, key := range keys {
		message := reconcile.JoinNames(messages[key]) // which names the file
		if key != (state.ID{}).Key() {
			message = key + ": " + message
		}
		out = append(out, message)
	}
	return out
}

// messagesOf returns the messages of the entries with an action.
func (p *importPlan) messagesOf(action v1alpha1.StateAction) (out []string) {
	for _, c := range p.clusters {
		if c.Action == action {
			out = append(out, c.Key+": "+c.Message)
		}
	}
	for _, c := range p.credentials {
		if c.Action == action {
			out = append(out, "credentials of "+c.Key+": "+c.Message)
		}
	}
	return out
}

// count returns the number of entries with one of the actions.
func (p *importPlan) count(actions ...v1alpha1.StateAction) (clusters, credentials int) {
	count := func(rows []v1alpha1.ImportedCluster) (n int) {
		for _, row := range rows {
			if slices.Contains(actions, row.Action) {
				n++
			}
		}
		return n
	}
	return count(p.clusters), count(p.credentials)
}

// doneMessage returns the message of a successful import. It depends only on the rows of the
// status, so that the status is not written while these do not change.
func (p *importPlan) doneMessage(dest destination) string {
	out := statestore.CountSummary(p.count(v1alpha1.StateInSync, v1alpha1.StateChangedSince)) + " in " + dest.String()
	if dest.agent != "" {
		out = statestore.CountSummary(p.count(v1alpha1.StateSent)) + " sent to " + dest.String()
	}
	for _, others := range []struct {
		action v1alpha1.StateAction
		text   string
	}{
		{v1alpha1.StateChangedSince, "changed in the store since the import"},
		{v1alpha1.StateRemovedSince, "removed from the store since the import"},
		{v1alpha1.StateLeft, "no longer in the source"},
	} {
		if n, m := p.count(others.action); n+m > 0 {
			out += "; " + others.text + ": " + statestore.CountSummary(n, m)
		}
	}
	return out + p.sizeWarning()
}

// sizeWarning returns a warning if the store is almost full.
func (p *importPlan) sizeWarning() string {
	if p.bytes < state.WarnStoreBytes {
		return ""
	}
	// Rounded down to multiples of 5 %, so that writes of other clients do not change the status.
	return fmt.Sprintf("; the states use %d %% of the maximum size of a ConfigMap: an import that exceeds it is "+
		"rejected", p.bytes*20/state.MaxStoreBytes*5)
}

// dryRunMessage returns what an import would do.
func (p *importPlan) dryRunMessage(dest destination) string {
	if dest.agent != "" {
		return fmt.Sprintf("spec.dryRun: would send %s to %s%s",
			statestore.CountSummary(p.count(v1alpha1.StateCreate, v1alpha1.StateUpdate)), dest, p.sizeWarning())
	}
	return fmt.Sprintf("spec.dryRun: would create %s and overwrite %s in %s%s",
		statestore.CountSummary(p.count(v1alpha1.StateCreate)), statestore.CountSummary(p.count(v1alpha1.StateUpdate)),
		dest, p.sizeWarning())
}
