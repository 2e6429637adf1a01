package kind

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
)

// errRevisionLost means that the Secret with the revision of an object does not exist.
var errRevisionLost = errors.New("the Secret with its files does not exist")

// selectRevision returns the revision that an object uses now, and the field status.artifact for
// it. With a rollout, an object keeps its revision until another one is released to it.
func (p *publishedKind) selectRevision(ctx context.Context, o *Object,
	current *publication) (*publication, *appsv1.TakenArtifact, error) {
	taken := o.Status.Artifact
	switch {
	case current.spec.Rollout == nil:
		return current, nil, nil
	case taken != nil && taken.Digest == current.artifact.Digest:
		return current.at(taken.Revision), taken, nil
	case p.releases.isReleased(current.artifact.Digest, o.UID):
		return current, &appsv1.TakenArtifact{Revision: current.artifact.Revision, Digest: current.artifact.Digest,
			Since: &metav1.Time{Time: p.reconciler.Clock.Now()},
			WasReady: isReady(o) || taken != nil && taken.WasReady &&
				o.Status.LastAppliedRevision != taken.Revision}, nil
	case taken == nil:
		complete := p.complete.Load()
		if complete == nil {
			complete = current
		}
		return complete, &appsv1.TakenArtifact{Revision: complete.artifact.Revision,
			Digest: complete.artifact.Digest}, nil
	}
	selected, err := p.keptRevision(ctx, taken, current)
	return selected, taken, err
}

// at returns the publication with another name of its revision, whose files are the same.
func (p *publication) at(revision string) *publication {
	if p.artifact.Revision == revision {
		return p
	}
	out := *p
	out.artifact.Revision = revision
	return &out
}

// keptRevision returns the publication of a kept revision, with the settings of another one.
func (p *publishedKind) keptRevision(ctx context.Context, taken *appsv1.TakenArtifact,
	settings *publication) (*publication, error) {
	kept, known := p.kept.Load(taken.Digest)
	if !known {
		loaded, exists, err := p.kinds.Revisions.load(ctx, p.owner, taken)
		switch {
		case err != nil:
			return nil, fmt.Errorf("revision %s of the stack: %w", taken.Revision, err)
		case !exists:
			return nil, fmt.Errorf("revision %s of the stack: %w", taken.Revision, errRevisionLost)
		}
		kept, _ = p.kept.LoadOrStore(taken.Digest, loaded)
	}
	out := *kept.(*publication).at(taken.Revision)
	out.spec, out.keys, out.keysVersion = settings.spec, settings.keys, settings.keysVersion
	return &out, nil
}

// revisionOutcome is the outcome for an object whose revision cannot be read.
func (s *objectSteps) revisionOutcome(o *Object, err error) reconcile.Outcome {
	if errors.Is(err, errRevisionLost) {
		return reconcile.Waiting{Reason: appsv1.AwaitingRolloutReason, Revision: o.Status.Artifact.Revision,
			On: err.Error() + "; nothing is changed, and drift is not corrected, until the rollout releases a " +
				"revision to the object",
			For: []appsv1.WaitReference{{Type: appsv1.WaitRollout, Kind: appsv1.KsctlKindKind,
				Name: s.published.owner}}}
	}
	return content.RenderOutcome(err, o.Status.Artifact.Revision)
}

// recordRevision sets status.artifact. Another revision is stored before an object is applied, so
// that a restart does not return to the previous one. With the same name, for other files, it is
// neither attempted nor applied.
func recordRevision(ctx context.Context, req *reconcile.Request[*Object], taken *appsv1.TakenArtifact) error {
	before := req.Object.Status.Artifact
	req.Object.Status.Artifact = taken
	if taken == nil || before != nil && *before == *taken {
		return nil
	}
	if st := &req.Object.Status; before != nil && before.Digest != taken.Digest {
		for _, revision := range []*string{&st.LastAppliedRevision, &st.LastAttemptedRevision} {
			if *revision == taken.Revision {
				*revision = ""
			}
		}
	}
	return req.Persist(ctx, "")
}
