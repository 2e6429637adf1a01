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

// emitRefChange emits an event if the commit does not descend from that of the previous artifact: a
// tag was moved, or a branch rewritten. The new commit is used nevertheless.
func (f remoteCommit) emitRefChange(ctx context.Context, req *reconcile.Request[*appsv1.KsctlSource], before *fluxmeta.Artifact) {
	if before == nil || f.chosen.name == "" {
		return
	}
	old := commitOf(before.Revision)
	if old == "" || old == f.chosen.commit || !strings.HasPrefix(before.Revision, f.chosen.name+"@sha1:") {
		return // spec.git.ref has changed
	}
	if f.chosen.tag.Name != "" {
		req.Event(corev1.EventTypeWarning, appsv1.TagMovedReason, fmt.Sprintf("tag %.100q was moved from commit %s to %s", f.chosen.name, old, f.chosen.commit))
		return
	}
	// An error only suppresses the event.
	if rewritten, err := f.remote.HistoryRewritten(ctx, old, f.chosen.commit); err == nil && rewritten {
		req.Event(corev1.EventTypeWarning, appsv1.BranchRewrittenReason, fmt.Sprintf("branch %.100q was rewritten, for example by a force push: commit %s does not descend from %s", f.chosen.name, f.chosen.commit, old))
	}
}
