package source

import (
	"context"
	"fmt"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// refChange is an event about a moved tag or a rewritten branch. The new commit is used
// nevertheless.
type refChange struct {
	reason, message string
}

// refreshWithEvents returns a function that calls refreshGit and emits the event of a refChange.
func (s *Steps) refreshWithEvents(req *reconcile.Request[*appsv1.KsctlSource]) func(context.Context, *appsv1.KsctlSource) (string, error) {
	return func(ctx context.Context, obj *appsv1.KsctlSource) (string, error) {
		revision, moved, err := s.refreshGit(ctx, obj)
		if moved != nil {
			req.Event(corev1.EventTypeWarning, moved.reason, moved.message)
		}
		return revision, err
	}
}

// refChange returns the event if the commit does not descend from that of the previous artifact;
// nil if it does.
func (f remoteCommit) refChange(ctx context.Context, before *fluxmeta.Artifact) *refChange {
	if before == nil || f.chosen.name == "" {
		return nil
	}
	old := commitOf(before.Revision)
	if old == "" || old == f.chosen.commit || !strings.HasPrefix(before.Revision, f.chosen.name+"@sha1:") {
		return nil // spec.git.ref has changed
	}
	if f.chosen.tag.Name != "" {
		return &refChange{TagMovedReason, fmt.Sprintf("tag %.100q was moved from commit %s to %s", f.chosen.name, old, f.chosen.commit)}
	}
	// An error only suppresses the event.
	if rewritten, err := f.remote.HistoryRewritten(ctx, old, f.chosen.commit); err != nil || !rewritten {
		return nil
	}
	return &refChange{BranchRewrittenReason, fmt.Sprintf("branch %.100q was rewritten, for example by a force push: commit %s does not descend from %s", f.chosen.name, f.chosen.commit, old)}
}
