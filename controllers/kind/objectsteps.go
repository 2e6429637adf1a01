package kind

import (
	"context"
	"fmt"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// objectSteps reconciles an object of a served kind: as the install that the stack makes of it.
type objectSteps struct {
	published *publishedKind
	kinds     *Kinds
}

var _ reconcile.Steps[*Object] = (*objectSteps)(nil)

// Reconcile implements reconcile.Steps.
func (s *objectSteps) Reconcile(ctx context.Context, req *reconcile.Request[*Object]) reconcile.Outcome {
	current := s.published.current.Load()
	if current == nil {
		return s.notPublished(req.Object)
	}
	selected, taken, err := s.published.selectRevision(ctx, req.Object, current)
	if err != nil {
		return s.revisionOutcome(req.Object, err)
	}
	suspended := selected.artifact.Digest != current.artifact.Digest && s.suspends(ctx, req.Object, current)
	in, sensitive, err := s.install(ctx, req.Object, selected)
	if err != nil {
		if err := recordRevision(ctx, req, taken); err != nil {
			return reconcile.Retry{Err: err, Revision: selected.artifact.Revision}
		}
		req.Object.Status.LastAttemptedRevision = selected.artifact.Revision
		out := reconcile.Stalled{Err: err, Reason: appsv1.InvalidStackReason, Revision: selected.artifact.Revision}
		s.setStatus(ctx, req.Object, installWithoutSpec(req.Object), selected, out)
		return out
	}
	s.published.running.Store(in.UID, runningReconcile{selected, sensitive})
	defer s.published.running.Delete(in.UID)
	s.kinds.references.set(s.queueKey(req.Object), s.published.installs.References(in))
	if selected.artifact.Digest == current.artifact.Digest {
		suspended = in.Spec.Suspend
	}
	if s.published.releases.setSuspended(in.UID, suspended) {
		s.kinds.changed(s.published)
	}
	if in.Spec.Suspend {
		return reconcile.Deferred{}
	}
	if err := recordRevision(ctx, req, taken); err != nil {
		return reconcile.Retry{Err: err, Revision: selected.artifact.Revision}
	}
	in.ResourceVersion, in.Status = req.Object.ResourceVersion, req.Object.Status.KsctlInstallStatus
	out := s.published.installs.Reconcile(ctx, s.installRequest(req, in))
	req.Object.Status.KsctlInstallStatus = in.Status
	if _, deferred := out.(reconcile.Deferred); !deferred {
		s.setStatus(ctx, req.Object, in, selected, out)
	}
	return out
}

// suspends reports whether the current revision suspends an object that has another one. The
// rollout leaves out such an object.
func (s *objectSteps) suspends(ctx context.Context, o *Object, current *publication) bool {
	in, _, err := s.install(ctx, o, current)
	return err == nil && in.Spec.Suspend
}

// notPublished is the outcome while the KsctlKind publishes nothing. After a start, that may be so
// for moments: what the status has stays.
func (s *objectSteps) notPublished(o *Object) reconcile.Outcome {
	if isReady(o) {
		return reconcile.Deferred{}
	}
	err := &notPublishedError{s.published.owner}
	return reconcile.Waiting{On: err.Error(), Reason: appsv1.KindNotReadyReason, For: []appsv1.WaitReference{{
		Type: appsv1.WaitReadiness, Kind: appsv1.KsctlKindKind, Name: s.published.owner}}}
}

// Finalize implements reconcile.Steps. It works without the stack.
func (s *objectSteps) Finalize(ctx context.Context, req *reconcile.Request[*Object]) reconcile.Outcome {
	in := installWithoutSpec(req.Object)
	if account := in.Status.ServiceAccount; account != nil {
		in.Spec.ServiceAccountName = account.Name
	}
	if _, name, ok := target.ParseClusterID(in.Status.Cluster); ok {
		in.Spec.ClusterRef = &appsv1.ClusterReference{Name: name}
	}
	if current := s.published.current.Load(); current != nil {
		in.Spec.ServiceAccountName = current.spec.ServiceAccountName
		selected, _, err := s.published.selectRevision(ctx, req.Object, current)
		if err != nil {
			selected = current
		}
		if built, sensitive, err := s.install(ctx, req.Object, selected); err == nil {
			in = built
			s.published.running.Store(in.UID, runningReconcile{selected, sensitive})
			defer s.published.running.Delete(in.UID)
		}
	}
	out := s.published.installs.Finalize(ctx, s.installRequest(req, in))
	req.Object.Status.KsctlInstallStatus = in.Status
	return out
}

// Forget implements reconcile.Steps.
func (s *objectSteps) Forget(key types.NamespacedName) {
	s.kinds.references.set(queueKey(s.published.key(), key), nil)
	s.published.installs.Forget(key)
}

func (s *objectSteps) queueKey(o *Object) types.NamespacedName {
	return queueKey(s.published.key(), client.ObjectKeyFromObject(o))
}

// decryptionKeys is the name of the Secret with the keys of spec.decryption of the KsctlKind. For
// the install it exists in memory only.
const decryptionKeys = "(decryption keys)"

// install returns the install that the stack makes of an object, and its sensitive fields.
func (s *objectSteps) install(ctx context.Context, o *Object,
	current *publication) (*appsv1.KsctlInstall, map[string][]byte, error) {
	spec, sensitive, err := current.template.Install(ctx, s.published.value(o))
	if err != nil {
		return nil, nil, fmt.Errorf("stack %q: %w", current.stack, err)
	}
	spec.SourceRef, spec.Path, spec.Stack = current.spec.SourceRef, current.path, current.stack
	spec.StackVersion, spec.ServiceAccountName = current.template.StackVersion, current.spec.ServiceAccountName
	if d := current.spec.Decryption; d != nil {
		spec.Decryption = &appsv1.Decryption{Provider: d.Provider,
			SecretRef: fluxmeta.LocalObjectReference{Name: decryptionKeys}}
	}
	in := installWithoutSpec(o)
	in.Spec = spec
	o.schedule = spec.Schedule
	return in, sensitive, nil
}

// installWithoutSpec returns the metadata and the status of the install of an object.
func installWithoutSpec(o *Object) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{Status: o.Status.KsctlInstallStatus}
	o.DeepCopyInto(&in.ObjectMeta)
	return in
}

func (p *publishedKind) value(o *Object) map[string]any {
	return o.value(p.gvk.GroupVersion().String(), p.gvk.Kind)
}

// installRequest returns the request for the install of an object.
func (s *objectSteps) installRequest(req *reconcile.Request[*Object],
	in *appsv1.KsctlInstall) *reconcile.Request[*appsv1.KsctlInstall] {
	return &reconcile.Request[*appsv1.KsctlInstall]{Object: in, Requested: req.Requested, Event: req.Event,
		Persist: func(ctx context.Context, doing string) error {
			req.Object.Status.KsctlInstallStatus = in.Status
			err := req.Persist(ctx, doing)
			in.ResourceVersion, in.Status.CommonStatus = req.Object.ResourceVersion, req.Object.Status.CommonStatus
			return err
		}}
}

// setStatus sets the fields of the status that the stack describes. Those that cannot be computed
// are left out. When the install is Ready, a warning states why.
func (s *objectSteps) setStatus(ctx context.Context, o *Object, in *appsv1.KsctlInstall, current *publication,
	out reconcile.Outcome) {
	ready := reconcile.ReadyCondition(out)
	st, err := current.template.Status(ctx, stacks.ServedState{Object: s.published.value(o), Ready: ready,
		Objects: s.objects(in)})
	o.Status.Fields = st.Fields
	if err != nil && ready.Status == metav1.ConditionTrue {
		o.Status.Warnings = append(slices.Clone(o.Status.Warnings), reconcile.Truncate(err.Error(), maxWarning))
	}
	s.setConditions(o, st.Conditions)
}

// maxWarning is the maximum length of a warning, in bytes.
const maxWarning = 512

// setConditions replaces the conditions that the stack sets.
func (s *objectSteps) setConditions(o *Object, conditions []metav1.Condition) {
	own := []string{appsv1.ReadyCondition, appsv1.ReconcilingCondition, appsv1.StalledCondition}
	for _, c := range slices.Clone(o.Status.Conditions) {
		kept := slices.Contains(own, c.Type) || slices.ContainsFunc(conditions,
			func(set metav1.Condition) bool { return set.Type == c.Type })
		if !kept {
			apimeta.RemoveStatusCondition(&o.Status.Conditions, c.Type)
		}
	}
	for _, c := range conditions {
		c.ObservedGeneration = o.Generation
		c.LastTransitionTime = metav1.NewTime(s.published.reconciler.Clock.Now())
		apimeta.SetStatusCondition(&o.Status.Conditions, c)
	}
}
