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
		return reconcile.FailureOutcome(err, secretErr.Reason, true, "")
	case errors.As(err, &sopsErr):
		return reconcile.FailureOutcome(err, string(sopsErr.Reason), sopsErr.Terminal(), "")
	case errors.As(err, &gitErr):
		return reconcile.FailureOutcome(err, string(gitErr.Reason), gitErr.Terminal(), "")
	case errors.As(err, &artifactErr):
		return reconcile.FailureOutcome(err, string(artifactErr.Reason), artifactErr.Terminal(), "")
	}
	return reconcile.OutcomeOf(err, "")
}

// outcome returns the outcome of an export after its plan was executed. Errors take precedence over
// success.
func (p *exportPlan) outcome(target string, size int, revision string) reconcile.Outcome {
	for _, failure := range []struct {
		action v1alpha1.ExportAction
		reason string
	}{{v1alpha1.ExportInvalid, v1alpha1.InvalidStateReason}, {v1alpha1.ExportTaken, v1alpha1.FileTakenReason},
		{v1alpha1.ExportByAnother, v1alpha1.ExportedByAnotherReason}} {
		if messages := p.messagesOf(failure.action); len(messages) > 0 {
			return reconcile.Stalled{Err: errors.New(statestore.JoinMessages(messages)),
				Reason: cmp.Or(p.invalidReason, failure.reason), Revision: revision}
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

// count returns the number of files with one of the actions.
func (p *exportPlan) count(actions ...v1alpha1.ExportAction) (clusters, credentials int) {
	count := func(rows []v1alpha1.ExportedFile) (n int) {
		for _, row := range rows {
			if slices.Contains(actions, row.Action) {
				n++
			}
		}
		return n
	}
	return count(p.clusters), count(p.credentials)
}

// doneMessage returns the message of a successful export. It depends only on the rows of the
// status, so that the status is not written while these do not change.
func (p *exportPlan) doneMessage(target string) string {
	out := statestore.CountSummary(p.count(v1alpha1.ExportInSync)) + " in " + target
	if n, m := p.count(v1alpha1.ExportLeft); n+m > 0 {
		out += "; no longer in the store or not selected, and kept: " + statestore.CountSummary(n, m)
	}
	return out
}

// sizeWarning returns a warning if the Secret is almost full.
func sizeWarning(size int) string {
	if size < state.WarnStoreBytes {
		return ""
	}
	return fmt.Sprintf("; the files use %d %% of the maximum size of a Secret: an export that exceeds it is rejected",
		size*20/state.MaxStoreBytes*5)
}
