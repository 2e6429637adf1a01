package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// StorageSpace is the name of the storage space for published stacks.
const StorageSpace = "ksctlinstall"

// errNoArtifactServer is returned by publish if the controller runs without an artifact server.
var errNoArtifactServer = errors.New("publishing needs the artifact server of KsctlSources, " +
	"which is disabled in this controller")

// mayBePublished reports whether an install has published its stack, or has started to. The status
// records this before the stack is published.
func mayBePublished(in *appsv1.KsctlInstall) bool {
	return apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition) != nil
}

// publishFailed reports whether the last attempt to publish failed.
func publishFailed(in *appsv1.KsctlInstall) bool {
	return apimeta.IsStatusConditionFalse(in.Status.Conditions, appsv1.PublishedCondition)
}

// publishesOnly reports whether an install publishes its stack without applying the objects.
func publishesOnly(in *appsv1.KsctlInstall) bool {
	return in.Spec.Publish != nil && in.Spec.Publish.Mode == appsv1.PublishOnly
}

// withdraw removes the published artifact.
func (s *Steps) withdraw(ctx context.Context, o *owner) error {
	in := o.req.Object
	if !mayBePublished(in) {
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

// publishWhenReady publishes a stack whose reconcile ended with Done. An error does not change the
// readiness of the install.
func (s *Steps) publishWhenReady(ctx context.Context, o *owner, input *applyInput,
	out reconcile.Outcome) reconcile.Outcome {
	if o.req.Object.Spec.Publish == nil {
		return out
	}
	done, ready := out.(reconcile.Done)
	if !ready || len(o.removalRequests) > 0 {
		s.markPublishing(o, "the stack is published when the install is ready")
		return out
	}
	pending, err := s.publish(ctx, o, input)
	now := s.Clock.Now()
	switch {
	case pending:
		done.RequeueAt = now
	case err != nil:
		done.Message += "; not published: " + err.Error()
		if _, terminal := publishErrorReason(err); !terminal {
			done.RequeueAt = now.Add(reconcile.RetryInterval(o.req.Object.Schedule()))
		}
	}
	return done
}

// publishOnly publishes a stack without applying its objects.
func (s *Steps) publishOnly(ctx context.Context, o *owner, input *applyInput) reconcile.Outcome {
	in, revision := o.req.Object, input.revision
	input.components = engine.Prepare(ctx, input.stack.components, o.Policies(), o.target.Discovery)
	s.Plans.RecordPlan(in, input.digest, nil, false)
	switch {
	case o.inv.Len() > 0:
		return reconcile.Stalled{Reason: appsv1.StillInstalledReason, Revision: revision,
			Err: fmt.Errorf("spec.publish.mode is Only, but %d objects are installed: "+
				"the objects are kept and the stack is not published; set spec.publish.mode: WhenReady, or delete and "+
				"recreate the KsctlInstall", o.inv.Len())}
	case len(o.removalRequests) > 0:
		return reconcile.Waiting{On: "the stack is not published while a KsctlRemove refers to the install: " +
			"KsctlRemove " + o.removalRequests[0].record.Name, For: o.removalRequests.waits(in.Namespace),
			RequeueAt: o.removalRequests.firstReinstall(), Revision: revision}
	}
	if err := s.keepPublishedValues(ctx, o, input.components); err != nil {
		return reconcile.OutcomeOf(err, revision)
	}
	pending, err := s.publish(ctx, o, input)
	in.Status.Components = nil
	for _, c := range input.components {
		in.Status.Components = append(in.Status.Components,
			o.componentStatus(plan.ComponentState{Name: c.Name, Version: c.Version, Objects: len(c.Items),
				Ready: !pending && err == nil}))
	}
	switch reason, terminal := publishErrorReason(err); {
	case pending:
		return reconcile.Waiting{On: "publishing revision " + revision,
			For: []appsv1.WaitReference{{Type: appsv1.WaitResponse, Kind: sourcev1.ExternalArtifactKind,
				Namespace: in.Namespace, Name: in.Name}}, RequeueAt: s.Clock.Now(), Revision: revision}
	case terminal:
		return reconcile.Stalled{Err: err, Reason: reason, Revision: revision}
	case err != nil:
		return reconcile.Retry{Err: err, Reason: reason, Revision: revision}
	}
	in.Status.LastAppliedRevision = revision
	return reconcile.Done{Revision: revision, Message: fmt.Sprintf("Published revision %s: %s %s, %d components; "+
		"objects are not applied (spec.publish.mode: Only)", revision,
		in.Spec.Stack, in.Status.StackVersion, len(input.components))}
}

// keepPublishedValues stores the generated values of an install that only publishes: in Secrets
// beside the install, which are garbage collected with it. They are written with the permissions of
// its account, before anything that contains the values is published.
func (s *Steps) keepPublishedValues(ctx context.Context, o *owner, components []plan.Component) error {
	for i := range components {
		for j := range components[i].Items {
			it := &components[i].Items[j]
			if !it.Generated {
				continue
			}
			manifest, err := o.Manifest(ctx, it)
			if err == nil {
				err = s.storeBesideInstall(ctx, o.req.Object, manifest)
			}
			if err != nil {
				return fmt.Errorf("storing the generated values of component %q: %w", it.Component,
					&engine.ObjectError{Ref: it.Ref, Verb: "apply", Err: err, Redact: o.Policies().Redact})
			}
		}
	}
	return nil
}

// storeBesideInstall applies a Secret in the namespace of an install, unless it has the data
// already.
func (s *Steps) storeBesideInstall(ctx context.Context, in *appsv1.KsctlInstall, manifest []byte) error {
	c, err := s.clientFor(ctx, in)
	if err != nil {
		return err
	}
	var secret corev1.Secret
	if err := json.Unmarshal(manifest, &secret); err != nil {
		return err
	}
	stored, err := readSecret(ctx, c, stacks.Ref{Kind: "Secret", Namespace: in.Namespace, Name: secret.Name})
	if err != nil || stored != nil && maps.EqualFunc(stored.Data, secret.Data, bytes.Equal) {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(manifest); err != nil {
		return err
	}
	u.SetNamespace(in.Namespace)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: appsv1.GroupVersion.String(),
		Kind: appsv1.KsctlInstallKind, Name: in.Name, UID: in.UID}})
	_, err = c.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(in.Namespace).
		Apply(ctx, secret.Name, u, metav1.ApplyOptions{FieldManager: live.FieldManager, Force: true})
	return err
}

// publish updates the ExternalArtifact with as few requests as possible. pending is true if only
// the Published condition was set. It must be stored before the first publication.
func (s *Steps) publish(ctx context.Context, o *owner, input *applyInput) (pending bool, err error) {
	if !o.publishRecorded {
		s.markPublishing(o, "publishing starts when this condition is stored")
		return true, nil
	}
	in := o.req.Object
	revision := ""
	switch secretNames := valuesSecretNames(&in.Spec); {
	case s.Publisher == nil:
		err = errNoArtifactServer
	case len(secretNames)+len(input.stack.decrypted) > 0 && in.Spec.Publish.Secrets != appsv1.SecretsInclude:
		err = &publish.SecretsError{Read: secretNames, Decrypted: input.stack.decrypted}
	default:
		revision, err = s.Publisher.Publish(ctx, &publish.Publication{
			Owner: in, Kind: appsv1.GroupVersion.WithKind(appsv1.KsctlInstallKind), Version: input.stack.stackVersion,
			Origin:            input.revision,
			MayContainSecrets: in.Spec.Publish.Secrets == appsv1.SecretsInclude,
			ContentID:         input.stack.digest + " " + string(in.Spec.Publish.Secrets),
			Files: func(ctx context.Context) (fs.FS, error) {
				return o.publishedFiles(ctx, input.components)
			},
		}, &o.published)
	}
	if _, refused := errors.AsType[*publish.SecretsError](err); refused {
		if withdrawErr := s.Publisher.WithdrawSecrets(ctx, in, &o.published); withdrawErr != nil {
			err = withdrawErr
		}
	}
	if err != nil {
		reason, _ := publishErrorReason(err)
		s.setPublishedCondition(o, metav1.ConditionFalse, reason, err.Error())
		return false, err
	}
	s.setPublishedCondition(o, metav1.ConditionTrue, fluxmeta.SucceededReason,
		fmt.Sprintf("ExternalArtifact %s/%s has revision %s", in.Namespace, in.Name, revision))
	return false, nil
}

// valuesSecretNames returns the names of the Secrets in spec.valuesFrom and spec.parametersFrom.
func valuesSecretNames(spec *appsv1.KsctlInstallSpec) (names []string) {
	for _, ref := range spec.ValuesFrom {
		if ref.Kind == "Secret" {
			names = append(names, ref.Name)
		}
	}
	for _, ref := range spec.ParametersFrom {
		if ref.Kind == "Secret" {
			names = append(names, ref.Name)
		}
	}
	return names
}

// publishedFiles returns the files of the published artifact.
func (o *owner) publishedFiles(ctx context.Context, components []plan.Component) (fs.FS, error) {
	out := make([]publish.Component, 0, len(components))
	for _, component := range components {
		c := publish.Component{Name: component.Name}
		for _, it := range component.Items {
			if it.Shared {
				c.Namespace = it.Name
				continue
			}
			if it.Generated || it.Contribute {
				continue // they are for the next render of this install, or parts of objects of others
			}
			object := it.Object
			var err error
			if object.Manifest, err = o.Manifest(ctx, &it); err != nil {
				return nil, err
			}
			c.Objects = append(c.Objects, object)
		}
		out = append(out, c)
	}
	return publish.Files(out, o.req.Object.Spec.Publish.Secrets)
}

// markPublishing sets the Published condition to Unknown before the first publication.
func (s *Steps) markPublishing(o *owner, message string) {
	if !mayBePublished(o.req.Object) {
		s.setPublishedCondition(o, metav1.ConditionUnknown, fluxmeta.ProgressingReason, message)
	}
}

// setPublishedCondition sets the Published condition. A new failure also emits an event.
func (s *Steps) setPublishedCondition(o *owner, status metav1.ConditionStatus, reason, message string) {
	in := o.req.Object
	before := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition)
	if status == metav1.ConditionFalse && (before == nil || before.Reason != reason || before.Status != status) {
		o.req.Event(corev1.EventTypeWarning, reason, "not published: "+message)
	}
	apimeta.SetStatusCondition(&in.Status.Conditions, metav1.Condition{Type: appsv1.PublishedCondition, Status: status,
		Reason:  reason,
		Message: reconcile.Truncate(message, maxComponentMessage), ObservedGeneration: in.Generation,
		LastTransitionTime: metav1.NewTime(s.Clock.Now())})
}

// publishErrorReason returns the condition reason of a publish error. terminal is false if a retry
// may succeed without another change.
func publishErrorReason(err error) (reason string, terminal bool) {
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
	case errors.Is(err, errNoArtifactServer):
		return appsv1.PublishingDisabledReason, true
	case errors.As(err, &secrets):
		return appsv1.SecretsRefusedReason, true
	case errors.Is(err, publish.ErrEmpty):
		return appsv1.EmptyRenderReason, true
	case errors.As(err, &owned):
		return appsv1.OwnedByAnotherReason, true
	case errors.As(err, &source):
		return string(source.Reason), false
	case errors.As(err, &full):
		return appsv1.StorageFullReason, false
	case errors.As(err, &packed):
		return string(packed.Reason), packed.Terminal()
	}
	return appsv1.PublishingFailedReason, false
}
