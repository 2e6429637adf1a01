package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
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
	_, invalid := content.RenderOutcome(err, "").(reconcile.Stalled)
	switch {
	case err == nil:
		p.complete.Store(kept)
	case invalid || errors.Is(err, errRevisionLost):
		setComplete(k, p, next)
	default:
		return err
	}
	return nil
}

// setComplete records that a publication was rolled out to all objects.
func setComplete(k *appsv1.KsctlKind, p *publishedKind, c *publication) {
	p.complete.Store(c)
	k.Status.Artifact = &appsv1.TakenArtifact{Revision: c.artifact.Revision, Digest: c.artifact.Digest}
}

// rollOut takes the next step of a rollout.
func (s *Steps) rollOut(ctx context.Context, k *appsv1.KsctlKind, p *publishedKind,
	objects []Object) reconcile.Outcome {
	current := p.current.Load()
	settings := current.spec.Rollout
	if settings == nil {
		pruneAt, err := s.pruneRevisions(ctx, p, nil)
		if err != nil {
			return reconcile.Retry{Err: err, Revision: current.source.Revision}
		}
		return s.served(k, p, pruneAt)
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
		if k.Status.Artifact.Digest != current.artifact.Digest {
			s.Kinds.composition.forget(p.key())
		}
		setComplete(k, p, current)
	}
	pruneAt, err := s.pruneRevisions(ctx, p, usedRevisions(k, current, objects))
	if err != nil {
		return reconcile.Retry{Err: err, Revision: current.source.Revision}
	}
	summary := fmt.Sprintf("rollout of revision %s: %s", current.artifact.Revision, plan.summary(len(objects)))
	switch {
	case len(plan.failed) > 0:
		if settings.OnFailure != appsv1.FailureContinue {
			summary += "; waiting objects are updated when the failed ones are Ready, or after the stack changes"
		}
		return reconcile.Waiting{On: summary, Reason: appsv1.ObjectsFailedReason, TimedOut: true,
			RequeueAt: plan.next, Revision: current.source.Revision, For: plan.waits(p)}
	case !plan.complete():
		return reconcile.Waiting{On: summary, RequeueAt: plan.next, Revision: current.source.Revision,
			For: plan.waits(p)}
	}
	return s.served(k, p, pruneAt)
}

// served is the outcome when all objects have the current revision. next is the time of the next
// reconcile; zero for the interval.
func (s *Steps) served(k *appsv1.KsctlKind, p *publishedKind, next time.Time) reconcile.Outcome {
	current := p.current.Load()
	k.Status.LastAppliedRevision = current.source.Revision
	return reconcile.Done{Revision: current.source.Revision, RequeueAt: next,
		Message: fmt.Sprintf("%s is served from revision %s: stack %s %s", p.key(), current.source.Revision,
			current.stack, current.template.StackVersion)}
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

// usedRevisions returns the digests of the kept revisions that are in use.
func usedRevisions(k *appsv1.KsctlKind, current *publication, objects []Object) map[string]bool {
	used := map[string]bool{current.artifact.Digest: true, k.Status.Artifact.Digest: true}
	for i := range objects {
		if taken := objects[i].Status.Artifact; taken != nil {
			used[taken.Digest] = true
		}
	}
	return used
}

// pruneDelay is how long a revision is kept after its last use: an object that is being reconciled
// may have it, and its status not yet.
const pruneDelay = 30 * time.Second

// pruneRevisions deletes the kept revisions that are not used for a while. It returns the time at
// which there is more to delete; zero if there is nothing.
func (s *Steps) pruneRevisions(ctx context.Context, p *publishedKind, used map[string]bool) (time.Time, error) {
	digests, now := slices.Sorted(maps.Keys(used)), p.reconciler.Clock.Now()
	if p.usedAt == nil {
		p.usedAt = map[string]time.Time{}
	}
	isUsed := map[string]bool{}
	for _, digest := range digests {
		name := revisionSecretName(p.owner, digest)
		p.usedAt[name], isUsed[name] = now, true
	}
	if p.pruned != nil && slices.Equal(p.pruned, digests) {
		return time.Time{}, nil
	}
	p.kept.Range(func(digest, _ any) bool {
		if !used[digest.(string)] {
			p.kept.Delete(digest)
		}
		return true
	})
	var next time.Time
	err := s.Kinds.Revisions.prune(ctx, p.owner, func(name string) bool {
		if _, known := p.usedAt[name]; !known {
			p.usedAt[name] = now
		}
		until := p.usedAt[name].Add(pruneDelay)
		if isUsed[name] || !now.Before(until) {
			return isUsed[name]
		}
		if next.IsZero() || until.Before(next) {
			next = until
		}
		return true
	})
	if err == nil && next.IsZero() {
		p.pruned = append([]string{}, digests...)
	}
	return next, err
}
