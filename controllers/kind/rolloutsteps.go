package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// startRollout prepares the rollout of a publication. Without an earlier rollout, the publication
// counts as complete.
func (s *Steps) startRollout(ctx context.Context, k *appsv1.KsctlKind, p *publishedKind, next *publication) error {
	if next.spec.Rollout == nil {
		k.Status.Artifact = nil
		p.complete.Store(nil)
		return nil
	}
	p.releases.start(next.artifact.Digest)
	complete := k.Status.Artifact
	if complete == nil || complete.Digest == next.artifact.Digest {
		setComplete(k, p, next)
		return nil
	}
	kept, err := p.keptRevision(ctx, complete, next)
	switch {
	case errors.Is(err, errRevisionLost):
		setComplete(k, p, next)
	case err != nil:
		return err
	default:
		p.complete.Store(kept)
	}
	return nil
}

// setComplete records that a publication was rolled out to all objects.
func setComplete(k *appsv1.KsctlKind, p *publishedKind, c *publication) {
	p.complete.Store(c)
	k.Status.Artifact = &appsv1.TakenArtifact{Revision: c.artifact.Revision, Digest: c.artifact.Digest}
}

// rollOut takes the next step of a rollout. The outcome is nil when all objects have the revision.
func (s *Steps) rollOut(ctx context.Context, k *appsv1.KsctlKind, p *publishedKind,
	objects []Object) reconcile.Outcome {
	current := p.current.Load()
	settings := current.spec.Rollout
	if settings == nil {
		return nil
	}
	plan := planRollout(p.releases.rolloutObjects(objects), rolloutOptions{digest: current.artifact.Digest,
		maxConcurrent: int(ptr.Deref(settings.MaxConcurrent, appsv1.DefaultMaxConcurrent)),
		stopOnFailure: settings.OnFailure != appsv1.FailureContinue, timeout: reconcile.Timeout(&k.Spec.Schedule),
		now: p.reconciler.Clock.Now()})
	for _, o := range plan.release {
		p.releases.release(o.uid)
		s.Released(p.key(), o.key)
	}
	if plan.complete() {
		setComplete(k, p, current)
	}
	if err := s.pruneRevisions(ctx, k, p, objects); err != nil {
		return reconcile.Retry{Err: err, Revision: current.source.Revision}
	}
	summary := fmt.Sprintf("rollout of revision %s: %s", current.artifact.Revision, plan.summary(len(objects)))
	switch {
	case len(plan.failed) > 0:
		if settings.OnFailure != appsv1.FailureContinue {
			summary += "; the others are updated after these are Ready, or with the next revision of the stack"
		}
		return reconcile.Waiting{On: summary, Reason: appsv1.ObjectsFailedReason, TimedOut: true,
			RequeueAt: plan.next, Revision: current.source.Revision, For: plan.waits(p)}
	case !plan.complete():
		return reconcile.Waiting{On: summary, RequeueAt: plan.next, Revision: current.source.Revision,
			For: plan.waits(p)}
	}
	return nil
}

// waits returns the first objects that a rollout waits for.
func (r *rolloutPlan) waits(p *publishedKind) (out []appsv1.WaitReference) {
	for _, name := range slices.Concat(r.failed, r.updating, r.waiting) {
		if len(out) == maxWaits {
			break
		}
		namespace, name, _ := strings.Cut(name, "/")
		out = append(out, appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: p.gvk.Kind, Namespace: namespace,
			Name: name})
	}
	return out
}

// pruneRevisions deletes the kept revisions that are no longer used.
func (s *Steps) pruneRevisions(ctx context.Context, k *appsv1.KsctlKind, p *publishedKind, objects []Object) error {
	used := map[string]bool{p.current.Load().artifact.Digest: true, k.Status.Artifact.Digest: true}
	for i := range objects {
		if taken := objects[i].Status.Artifact; taken != nil {
			used[taken.Digest] = true
		}
	}
	p.kept.Range(func(digest, _ any) bool {
		if !used[digest.(string)] {
			p.kept.Delete(digest)
		}
		return true
	})
	digests := strings.Join(slices.Sorted(maps.Keys(used)), " ")
	if p.pruned == digests {
		return nil
	}
	err := s.Kinds.Revisions.prune(ctx, k.Name, used)
	if err == nil {
		p.pruned = digests
	}
	return err
}
