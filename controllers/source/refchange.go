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

// move is what people should hear of: what they took for fixed, or for a
// history, is another one now. It is taken all the same.
type move struct {
	reason, message string
}

// telling is refresh with an event for what people should hear of.
func (s *Steps) telling(req *reconcile.Request[*appsv1.KsctlSource]) func(context.Context, *appsv1.KsctlSource) (string, error) {
	return func(ctx context.Context, obj *appsv1.KsctlSource) (string, error) {
		revision, moved, err := s.refresh(ctx, obj)
		if moved != nil {
			req.Event(corev1.EventTypeWarning, moved.reason, moved.message)
		}
		return revision, err
	}
}

// moved says how a commit came about that follows an artifact.
func (f found) moved(ctx context.Context, before *fluxmeta.Artifact) *move {
	if before == nil || f.chosen.name == "" {
		return nil
	}
	old := commitOf(before.Revision)
	if old == "" || old == f.chosen.commit || !strings.HasPrefix(before.Revision, f.chosen.name+"@sha1:") {
		return nil // another branch or tag is followed now
	}
	if f.chosen.tag.Name != "" {
		return &move{TagMovedReason, fmt.Sprintf("tag %.100q was moved from commit %s to %s", f.chosen.name, old, f.chosen.commit)}
	}
	// Only for the event: what can't be found out is not said.
	if rewritten, err := f.remote.Rewritten(ctx, old, f.chosen.commit); err != nil || !rewritten {
		return nil
	}
	return &move{BranchRewrittenReason, fmt.Sprintf("branch %.100q was rewritten, as by a force push: commit %s does not come after %s", f.chosen.name, f.chosen.commit, old)}
}
