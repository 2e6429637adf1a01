package exportstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// Reasons of an ExportState's conditions, in addition to those of stacks/artifact/git and
// stacks/sops.
const (
	// StoreNotFoundReason: the namespace has no ksctl store yet.
	StoreNotFoundReason = "StoreNotFound"
	// InvalidStateReason: an entry of the store is not a valid state.
	InvalidStateReason = "InvalidState"
	// PlaintextReason: a secret would not be encrypted.
	PlaintextReason = "PlaintextSecrets"
	// ExternalStorageReason: ksctl stores its states in a MongoDB.
	ExternalStorageReason = "ExternalStorage"
	// SecretConflictReason: the Secret exists and belongs to another owner.
	SecretConflictReason = "SecretConflict"
	// SecretFullReason: the files do not fit into the Secret.
	SecretFullReason = "SecretFull"
	// FileTakenReason: a file with the same name exists and is not an export of the same entry.
	FileTakenReason = "FileTaken"
	// ExportedByAnotherReason: an older export writes the same file.
	ExportedByAnotherReason = "ExportedByAnother"
	// TargetContendedReason: writes conflicted repeatedly with those of other clients.
	TargetContendedReason = "TargetContended"
)

// failureOutcome returns the outcome of an error, by its type.
func failureOutcome(err error) reconcile.Outcome {
	var (
		secretErr   *gitsecret.Error
		sopsErr     *sops.Error
		gitErr      *git.Error
		artifactErr *artifact.Error
	)
	switch {
	case errors.As(err, &secretErr): // a change of the Secret triggers a reconcile
		return reconcile.Stalled{Err: err, Reason: secretErr.Reason}
	case errors.As(err, &sopsErr):
		return outcomeFor(err, string(sopsErr.Reason), sopsErr.Terminal())
	case errors.As(err, &gitErr):
		return outcomeFor(err, string(gitErr.Reason), gitErr.Terminal())
	case errors.As(err, &artifactErr):
		return outcomeFor(err, string(artifactErr.Reason), artifactErr.Terminal())
	}
	return reconcile.OutcomeOf(err, "")
}

func outcomeFor(err error, reason string, terminal bool) reconcile.Outcome {
	if terminal {
		return reconcile.Stalled{Err: err, Reason: reason}
	}
	return reconcile.Retry{Err: err, Reason: reason}
}

// outcome returns the outcome of an export after its plan was executed. Errors take precedence over
// success.
func (p *exportPlan) outcome(target string, size int, revision string) reconcile.Outcome {
	for _, failure := range []struct {
		action v1alpha1.ExportAction
		reason string
	}{{v1alpha1.ExportInvalid, InvalidStateReason}, {v1alpha1.ExportTaken, FileTakenReason}, {v1alpha1.ExportByAnother, ExportedByAnotherReason}} {
		if messages := p.messagesOf(failure.action); len(messages) > 0 {
			return reconcile.Stalled{Err: errors.New(statestore.JoinMessages(messages)), Reason: cmp.Or(p.invalidReason, failure.reason), Revision: revision}
		}
	}
	return reconcile.Done{Message: p.doneMessage(target) + sizeWarning(size), Revision: revision}
}

// messagesOf returns the messages of the files with an action.
func (p *exportPlan) messagesOf(action v1alpha1.ExportAction) (out []string) {
	for _, row := range slices.Concat(p.clusters, p.credentials) {
		if row.Action == action {
			out = append(out, row.Key+": "+row.Message)
		}
	}
	return out
}

// doneMessage returns the message of a successful export. It depends only on the rows of the
// status, so that the status is not written while these do not change.
func (p *exportPlan) doneMessage(target string) string {
	count := func(rows []v1alpha1.ExportedFile, action v1alpha1.ExportAction) (n int) {
		for _, row := range rows {
			if row.Action == action {
				n++
			}
		}
		return n
	}
	out := statestore.CountSummary(count(p.clusters, v1alpha1.ExportInSync), count(p.credentials, v1alpha1.ExportInSync)) + " in " + target
	if n, m := count(p.clusters, v1alpha1.ExportLeft), count(p.credentials, v1alpha1.ExportLeft); n+m > 0 {
		out += "; no longer in the store or not selected, and kept: " + statestore.CountSummary(n, m)
	}
	return out
}

// sizeWarning returns a warning if the Secret is almost full.
func sizeWarning(size int) string {
	if size < state.WarnStoreBytes {
		return ""
	}
	return fmt.Sprintf("; the files use %d %% of the maximum size of a Secret: an export that exceeds it is rejected", size*20/state.MaxStoreBytes*5)
}
