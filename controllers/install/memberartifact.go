package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/chart"
)

// released is the artifact that an install goes by: one that was made for a cluster takes in
// what is offered when it is its turn, and keeps until then to what it took in last. It has no
// digest where that is not known.
func (o *owner) released(ctx context.Context, offered artifact.Artifact) (artifact.Artifact, error) {
	in := o.req.Object
	o.awaits = ""
	if fleetOf(in) == "" {
		in.Status.Artifact = nil
		return offered, nil
	}
	last := in.Status.Artifact
	if in.Annotations[appsv1.ReleaseAnnotation] == offered.Digest {
		in.Status.Artifact = taken(offered)
		if last != nil && last.Digest == offered.Digest {
			return offered, nil
		}
		// On record before anything of it is applied, or a start might take that back. One that has
		// failed counts as busy from here on.
		doing := ""
		if !isReady(in) {
			doing = "taking in revision " + offered.Revision
		}
		return offered, o.req.Persist(ctx, doing)
	}
	o.awaits = offered.Revision
	// Where it had a turn for another one, its spec may be of that, or it has taken that in and had no
	// chance to say so.
	if last == nil || last.Digest != in.Annotations[appsv1.ReleaseAnnotation] {
		return artifact.Artifact{}, nil
	}
	return artifact.Artifact{URL: last.URL, Revision: last.Revision, Digest: last.Digest, Client: offered.Client}, nil
}

// taken is what is kept of an artifact to get it again.
func taken(a artifact.Artifact) *appsv1.TakenArtifact {
	out := &appsv1.TakenArtifact{Revision: a.Revision, Digest: a.Digest}
	if artifact.MaskURL(a.URL) == a.URL {
		out.URL = a.URL
	}
	return out
}

// waitsForTurn is the outcome where it is not its turn yet, and it can't keep to what it has.
func (o *owner) waitsForTurn(why string) reconcile.Waiting {
	return reconcile.Waiting{Reason: WaitsForTurnReason,
		On: fmt.Sprintf("waits for its turn to take in revision %s, and nothing is changed or put right until then: %s", o.awaits, why)}
}

// unserved is the outcome of an error where what it keeps to until its turn can't be fetched; nil
// when that is not what is wrong. A server that does not answer is asked again at a time.
func (o *owner) unserved(err error, again time.Time) reconcile.Outcome {
	var (
		ofChart *chart.Error
		fetch   *artifact.Error
	)
	if o.awaits == "" || errors.As(err, &ofChart) || !errors.As(err, &fetch) {
		return nil
	}
	last := o.req.Object.Status.Artifact
	which := fmt.Sprintf("revision %s, which it took in last, ", last.Revision)
	switch fetch.Reason {
	case artifact.RefusedAddress:
		if last.URL == "" {
			return o.waitsForTurn(which + "can't be fetched again: its address could hold a secret, and is not kept")
		}
	case artifact.Unreachable:
		out := o.waitsForTurn(which + "can't be fetched: " + fetch.Error())
		out.Until = again
		return out
	case artifact.NotFound, artifact.DigestMismatch, artifact.AccessDenied:
		return o.waitsForTurn(which + "is not served any more: " + fetch.Error())
	}
	return nil
}
