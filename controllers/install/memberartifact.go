package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/chart"
)

// selectArtifact returns the artifact that an install applies. A member install uses the offered
// artifact when the rollout has released it to the member; until then it keeps the artifact that
// was released before. The result has no digest if that artifact is unknown.
func (o *owner) selectArtifact(ctx context.Context, offered artifact.Artifact) (artifact.Artifact, error) {
	in := o.req.Object
	o.awaitedRevision = ""
	if handover.FleetName(in) == "" {
		in.Status.Artifact = nil
		return offered, nil
	}
	last := in.Status.Artifact
	if in.Annotations[appsv1.ReleaseAnnotation] == offered.Digest {
		in.Status.Artifact = artifactStatus(offered)
		if last != nil && last.Digest == offered.Digest {
			return offered, nil
		}
		// The status is stored before an object is applied. Otherwise a restart could revert to the
		// previous artifact. A member that has failed counts as updating from now on.
		progress := ""
		if !handover.IsReady(in) {
			progress = "applying revision " + offered.Revision
		}
		return offered, o.req.Persist(ctx, progress)
	}
	o.awaitedRevision = offered.Revision
	// If another artifact was released in between, the spec may belong to that artifact, or the
	// artifact was applied without being recorded.
	if last == nil || last.Digest != in.Annotations[appsv1.ReleaseAnnotation] {
		return artifact.Artifact{}, nil
	}
	return artifact.Artifact{URL: last.URL, Revision: last.Revision, Digest: last.Digest, Client: offered.Client}, nil
}

// artifactStatus returns the status fields that are needed to fetch an artifact again. It has no
// URL if the URL can contain a secret.
func artifactStatus(a artifact.Artifact) *appsv1.TakenArtifact {
	out := &appsv1.TakenArtifact{Revision: a.Revision, Digest: a.Digest}
	if artifact.MaskURL(a.URL) == a.URL {
		out.URL = a.URL
	}
	return out
}

// awaitingRollout is the outcome of a member install that awaits the rollout, if the artifact that
// was released before is not available.
func (o *owner) awaitingRollout(why string) reconcile.Waiting {
	in := o.req.Object
	return reconcile.Waiting{Reason: appsv1.AwaitingRolloutReason,
		For: []appsv1.WaitReference{{Type: appsv1.WaitRollout, Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace,
			Name: handover.FleetName(in)}},
		On: fmt.Sprintf("awaiting the rollout of revision %s; until then nothing is changed and drift is not "+
			"corrected: %s", o.awaitedRevision, why)}
}

// artifactUnavailable is the outcome of an error if the artifact that was released before cannot be
// fetched while the install awaits the rollout. It is nil for other errors. If the server is
// unreachable, the next attempt is at retryAt.
func (o *owner) artifactUnavailable(err error, retryAt time.Time) reconcile.Outcome {
	var (
		ofChart *chart.Error
		fetch   *artifact.Error
	)
	if o.awaitedRevision == "" || errors.As(err, &ofChart) || !errors.As(err, &fetch) {
		return nil
	}
	last := o.req.Object.Status.Artifact
	subject := fmt.Sprintf("the previously released revision %s ", last.Revision)
	switch fetch.Reason {
	case artifact.RefusedAddress:
		if last.URL == "" {
			return o.awaitingRollout(subject +
				"cannot be fetched again: the URL may contain a secret and is not stored")
		}
	case artifact.Unreachable:
		out := o.awaitingRollout(subject + "cannot be fetched: " + fetch.Error())
		out.RequeueAt = retryAt
		return out
	case artifact.NotFound, artifact.DigestMismatch, artifact.AccessDenied:
		return o.awaitingRollout(subject + "is no longer served: " + fetch.Error())
	}
	return nil
}
