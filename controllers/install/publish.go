package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Space is where installs keep what they publish.
const Space = "ksctlinstall"

// errNoServer says that nothing can be published.
var errNoServer = errors.New("this controller serves no artifacts: it runs without the server of KsctlSources, which serves what is published, too")

// offer is what an install may publish: a render, as the cluster sees it.
type offer struct {
	want       *wanted
	components []engine.Component
	// origin is the source's revision.
	origin string
}

// publishes is true for an install that published, or was about to: that is put on
// record first.
func publishes(in *appsv1.KsctlInstall) bool {
	return apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition) != nil
}

// unpublished is true for an install that does not publish what it should.
func unpublished(in *appsv1.KsctlInstall) bool {
	return apimeta.IsStatusConditionFalse(in.Status.Conditions, appsv1.PublishedCondition)
}

// publishesOnly is true for an install that is to install nothing.
func publishesOnly(in *appsv1.KsctlInstall) bool {
	return in.Spec.Publish != nil && in.Spec.Publish.Mode == appsv1.PublishOnly
}

// withdraw takes back what was published.
func (s *Steps) withdraw(ctx context.Context, o *owner) error {
	in := o.req.Object
	if !publishes(in) {
		return nil
	}
	if s.Publisher != nil {
		if err := s.Publisher.Withdraw(ctx, in, &o.published); err != nil {
			return err
		}
	}
	apimeta.RemoveStatusCondition(&in.Status.Conditions, appsv1.PublishedCondition)
	return nil
}

// publishReady publishes what a pass found ready. What is installed is not less
// ready when it can't be published.
func (s *Steps) publishReady(ctx context.Context, o *owner, of offer, out reconcile.Outcome) reconcile.Outcome {
	if o.req.Object.Spec.Publish == nil {
		return out
	}
	done, ready := out.(reconcile.Done)
	if !ready || len(o.removals) > 0 {
		s.announce(o, "it is published when it is ready here")
		return out
	}
	pending, err := s.publish(ctx, o, of)
	now := s.Clock.Now()
	switch {
	case pending:
		done.Until = now
	case err != nil:
		done.Message += "; not published: " + err.Error()
		if _, stays := notPublished(err); !stays {
			done.Until = now.Add(reconcile.RetryInterval(o.req.Object.Schedule()))
		}
	}
	return done
}

// publishOnly publishes a render of which nothing is installed here.
func (s *Steps) publishOnly(ctx context.Context, o *owner, of offer) reconcile.Outcome {
	in, revision := o.req.Object, of.origin
	switch {
	case o.inv.Len() > 0:
		return reconcile.Stalled{Reason: StillInstalledReason, Revision: revision, Err: fmt.Errorf("spec.publish.mode is Only, and %d objects are installed here: "+
			"they are left as they are, and nothing is published; set WhenReady, or delete the KsctlInstall and make it anew", o.inv.Len())}
	case len(o.removals) > 0:
		return reconcile.Waiting{On: "nothing is published while a KsctlRemove names it: KsctlRemove " + o.removals[0].record.Name, Until: o.removals.returns(), Revision: revision}
	}
	pending, err := s.publish(ctx, o, of)
	in.Status.Components = nil
	for _, c := range of.components {
		in.Status.Components = append(in.Status.Components, o.component(engine.ComponentState{Name: c.Name, Version: c.Version, Objects: len(c.Items), Ready: !pending && err == nil}))
	}
	switch reason, stays := notPublished(err); {
	case pending:
		return reconcile.Waiting{On: "publishing revision " + revision, Until: s.Clock.Now(), Revision: revision}
	case stays:
		return reconcile.Stalled{Err: err, Reason: reason, Revision: revision}
	case err != nil:
		return reconcile.Retry{Err: err, Reason: reason, Revision: revision}
	}
	in.Status.LastAppliedRevision = revision
	return reconcile.Done{Revision: revision, Message: fmt.Sprintf("Published revision %s: %s %s, %d components; nothing is installed here", revision,
		in.Spec.Stack, in.Status.StackVersion, len(of.components))}
}

// publish has the ExternalArtifact offer a render, with the least work. Pending is true
// when only that it will was written down: that comes first.
func (s *Steps) publish(ctx context.Context, o *owner, of offer) (pending bool, err error) {
	if !o.recorded {
		s.announce(o, "it is about to be published")
		return true, nil
	}
	in := o.req.Object
	revision := ""
	switch read := secretsRead(&in.Spec); {
	case s.Publisher == nil:
		err = errNoServer
	case len(read)+len(of.want.decrypted) > 0 && in.Spec.Publish.Secrets != appsv1.SecretsInclude:
		err = &publish.SecretsError{Read: read, Decrypted: of.want.decrypted}
	default:
		revision, err = s.Publisher.Publish(ctx, &publish.Offer{
			Owner: in, Kind: appsv1.GroupVersion.WithKind(Kind), Version: of.want.stackVersion, Origin: of.origin,
			Secrets: in.Spec.Publish.Secrets == appsv1.SecretsInclude,
			Content: of.want.digest + " " + string(in.Spec.Publish.Secrets),
			Files:   func(ctx context.Context) (fs.FS, error) { return o.files(ctx, of.components) },
		}, &o.published)
	}
	if _, refused := errors.AsType[*publish.SecretsError](err); refused {
		if failed := s.Publisher.Retract(ctx, in, &o.published); failed != nil {
			err = failed
		}
	}
	if err != nil {
		reason, _ := notPublished(err)
		s.tell(o, metav1.ConditionFalse, reason, err.Error())
		return false, err
	}
	s.tell(o, metav1.ConditionTrue, fluxmeta.SucceededReason, fmt.Sprintf("ExternalArtifact %s/%s offers revision %s", in.Namespace, in.Name, revision))
	return false, nil
}

// secretsRead are the Secrets that values come from.
func secretsRead(spec *appsv1.KsctlInstallSpec) (names []string) {
	for _, ref := range spec.ValuesFrom {
		if ref.Kind == "Secret" {
			names = append(names, ref.Name)
		}
	}
	return names
}

// files are what is published of components.
func (o *owner) files(ctx context.Context, components []engine.Component) (fs.FS, error) {
	out := make([]publish.Component, 0, len(components))
	for i := range components {
		c := publish.Component{Name: components[i].Name}
		for j := range components[i].Items {
			it := &components[i].Items[j]
			if it.Shared {
				c.Namespace = it.Name
				continue
			}
			object := it.Object
			var err error
			if object.Manifest, err = o.Manifest(ctx, it); err != nil {
				return nil, err
			}
			c.Objects = append(c.Objects, object)
		}
		out = append(out, c)
	}
	return publish.Files(out, o.req.Object.Spec.Publish.Secrets)
}

// announce writes down that something is going to be published, before it is.
func (s *Steps) announce(o *owner, message string) {
	if !publishes(o.req.Object) {
		s.tell(o, metav1.ConditionUnknown, fluxmeta.ProgressingReason, message)
	}
}

// tell sets the condition; what goes wrong is an event, too.
func (s *Steps) tell(o *owner, status metav1.ConditionStatus, reason, message string) {
	in := o.req.Object
	before := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition)
	if status == metav1.ConditionFalse && (before == nil || before.Reason != reason || before.Status != status) {
		o.req.Event(corev1.EventTypeWarning, reason, "not published: "+message)
	}
	apimeta.SetStatusCondition(&in.Status.Conditions, metav1.Condition{Type: appsv1.PublishedCondition, Status: status, Reason: reason,
		Message: bounded(message, maxComponentMessage), ObservedGeneration: in.Generation, LastTransitionTime: metav1.NewTime(s.Clock.Now())})
}

// notPublished is the reason of an error; it stays until something else changes, or
// another try may mend it.
func notPublished(err error) (reason string, stays bool) {
	var (
		secrets *publish.SecretsError
		owned   *publish.OwnedError
		source  *sourceref.Error
		full    *storage.FullError
		packed  *artifact.Error
	)
	switch {
	case err == nil:
		return "", false
	case errors.Is(err, errNoServer):
		return PublishingDisabledReason, true
	case errors.As(err, &secrets):
		return SecretsRefusedReason, true
	case errors.Is(err, publish.ErrEmpty):
		return EmptyRenderReason, true
	case errors.As(err, &owned):
		return OwnedReason, true
	case errors.As(err, &source):
		return string(source.Reason), false
	case errors.As(err, &full):
		return storage.FullReason, false
	case errors.As(err, &packed):
		return string(packed.Reason), packed.Terminal()
	}
	return PublishingFailedReason, false
}
