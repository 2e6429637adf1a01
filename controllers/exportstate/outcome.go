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

// Reasons of an ExportState's conditions beside those of stacks/artifact/git and stacks/sops.
const (
	// StoreNotFoundReason: ksctl has no store in the namespace yet.
	StoreNotFoundReason = "StoreNotFound"
	// InvalidStateReason: an entry of the store is no state of ksctl.
	InvalidStateReason = "InvalidState"
	// PlaintextReason: a secret would stay readable.
	PlaintextReason = "PlaintextSecrets"
	// ExternalStorageReason: ksctl keeps its states in a MongoDB.
	ExternalStorageReason = "ExternalStorage"
	// SecretTakenReason: a Secret of the name that is to be written is somebody else's.
	SecretTakenReason = "SecretTaken"
	// SecretFullReason: the Secret has no room.
	SecretFullReason = "SecretFull"
	// FileTakenReason: a file of the name that is to be written is somebody else's.
	FileTakenReason = "FileTaken"
	// ExportedByAnotherReason: an older export writes the same file.
	ExportedByAnotherReason = "ExportedByAnother"
	// TargetContendedReason: somebody else kept writing to the target.
	TargetContendedReason = "TargetContended"
)

// exportError says what keeps an export back. A person has to mend it.
type exportError struct {
	reason string
	err    error
}

func fail(reason, format string, args ...any) error {
	return &exportError{reason: reason, err: fmt.Errorf(format, args...)}
}

// Error implements error.
func (e *exportError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *exportError) Unwrap() error { return e.err }

// failed is the outcome of an error. Its type decides.
func failed(err error) reconcile.Outcome {
	var (
		export *exportError
		secret *gitsecret.Error
		cipher *sops.Error
		repo   *git.Error
		tree   *artifact.Error
	)
	switch {
	case errors.As(err, &export):
		return reconcile.Stalled{Err: err, Reason: export.reason}
	case errors.As(err, &secret): // which is watched
		return reconcile.Stalled{Err: err, Reason: secret.Reason}
	case errors.As(err, &cipher):
		return judged(err, string(cipher.Reason), cipher.Terminal())
	case errors.As(err, &repo):
		return judged(err, string(repo.Reason), repo.Terminal())
	case errors.As(err, &tree):
		return judged(err, string(tree.Reason), tree.Terminal())
	}
	return reconcile.Retry{Err: err}
}

func judged(err error, reason string, terminal bool) reconcile.Outcome {
	if terminal {
		return reconcile.Stalled{Err: err, Reason: reason}
	}
	return reconcile.Retry{Err: err, Reason: reason}
}

// outcome says how an export stands whose plan was carried out. What is wrong is told before
// what is right.
func (p *plan) outcome(where string, room int, revision string) reconcile.Outcome {
	for _, bad := range []struct {
		action v1alpha1.ExportAction
		reason string
	}{{v1alpha1.ExportInvalid, InvalidStateReason}, {v1alpha1.ExportTaken, FileTakenReason}, {v1alpha1.ExportByAnother, ExportedByAnotherReason}} {
		if messages := p.saying(bad.action); len(messages) > 0 {
			return reconcile.Stalled{Err: errors.New(statestore.Lines(messages)), Reason: cmp.Or(p.reason, bad.reason), Revision: revision}
		}
	}
	return reconcile.Done{Message: p.message(where) + warning(room), Revision: revision}
}

// saying are the messages of files with an action.
func (p *plan) saying(action v1alpha1.ExportAction) (out []string) {
	for _, row := range slices.Concat(p.clusters, p.credentials) {
		if row.Action == action {
			out = append(out, row.Key+": "+row.Message)
		}
	}
	return out
}

// message of an export that is as it is wanted. It depends on what stands in the status alone,
// so that nothing is written while that stays.
func (p *plan) message(where string) string {
	in := func(rows []v1alpha1.ExportedFile, action v1alpha1.ExportAction) (n int) {
		for _, row := range rows {
			if row.Action == action {
				n++
			}
		}
		return n
	}
	out := statestore.Said(in(p.clusters, v1alpha1.ExportInSync), in(p.credentials, v1alpha1.ExportInSync)) + " in " + where
	if n, m := in(p.clusters, v1alpha1.ExportLeft), in(p.credentials, v1alpha1.ExportLeft); n+m > 0 {
		out += "; no more in the store, or not selected any more, and kept: " + statestore.Said(n, m)
	}
	return out
}

// warning of a Secret that will be full.
func warning(bytes int) string {
	if bytes < state.WarnStoreBytes {
		return ""
	}
	return fmt.Sprintf("; they take %d %% of what a Secret can hold: more will be refused", bytes*20/state.MaxStoreBytes*5)
}
