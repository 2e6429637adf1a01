package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Steps reconciles a KsctlKind.
type Steps struct {
	// Direct reads from and writes to the API server with the controller's permissions. Client
	// reads from the cache.
	Direct client.Client
	Client client.Reader
	// Content fetches the stacks.
	Content *content.Loader
	// Kinds are the kinds that are served.
	Kinds *Kinds
	// Groups are the API groups in which kinds may be served: --kind-groups.
	Groups []string
	// Installation is the controller's --owner-id.
	Installation string
	FieldOwner   string
	// Published is called after the revision of a kind has changed for all objects, with its key.
	Published func(kind string)
	// Released is called after a rollout has released a revision to an object.
	Released func(kind string, object types.NamespacedName)

	applied appliedObjects
	// owners are the names of the KsctlKinds of CustomResourceDefinitions, by name.
	owners sync.Map
}

var _ reconcile.Steps[*appsv1.KsctlKind] = (*Steps)(nil)

// Reconcile implements reconcile.Steps.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlKind]) reconcile.Outcome {
	k := req.Object
	published, out := s.publish(ctx, req)
	if out != nil {
		return out
	}
	current := published.current.Load()
	objects, out := published.list(ctx)
	if out != nil {
		return out
	}
	count := countObjects(objects, current)
	k.Status.Objects = &count
	return s.rollOut(ctx, k, published, objects)
}

// publish serves the kind of the current revision of the source. The outcome is nil when it is
// served.
func (s *Steps) publish(ctx context.Context,
	req *reconcile.Request[*appsv1.KsctlKind]) (*publishedKind, reconcile.Outcome) {
	k := req.Object
	ref := k.Spec.SourceRef
	a, err := s.Content.Artifact(ctx, ref, ref.Namespace, k.Spec.Stack, k.Spec.StackVersion)
	if err != nil {
		return nil, content.SourceOutcome(err)
	}
	k.Status.LastAttemptedRevision = a.Revision
	next, err := s.loadKind(ctx, k, a)
	if err == nil {
		err = s.readKeys(ctx, next)
	}
	if err != nil {
		return nil, content.RenderOutcome(err, a.Revision)
	}
	t := next.template
	if out := s.refuse(k, t, a.Revision); out != nil {
		return nil, out
	}
	d, err := s.serve(ctx, req, t)
	if err != nil {
		return nil, reconcile.OutcomeOf(err, a.Revision)
	}
	if refused := namesRefused(d); refused != "" {
		return nil, reconcile.Stalled{Reason: appsv1.InvalidStackReason, Revision: a.Revision,
			Err: fmt.Errorf("CustomResourceDefinition %s: %s", d.Name, refused)}
	}
	if !isEstablished(d) {
		return nil, reconcile.Waiting{On: fmt.Sprintf("CustomResourceDefinition %s is not established yet", d.Name),
			Revision: a.Revision, For: []appsv1.WaitReference{{Type: appsv1.WaitReadiness,
				Kind: stacks.DefinitionKind.Kind, Name: d.Name}}}
	}
	p, err := s.Kinds.start(k.Name, storedKind(d))
	if err != nil {
		return nil, reconcile.Retry{Err: err, Revision: a.Revision}
	}
	p.spec.Store(&next.spec)
	if err := s.startRollout(ctx, k, p, next); err != nil {
		return nil, reconcile.Retry{Err: err, Revision: a.Revision}
	}
	if before := p.current.Swap(next); !before.equal(next) {
		s.Published(p.key())
	}
	k.Status.StackVersion, k.Status.ServedVersions = t.StackVersion, nil
	for _, v := range t.Versions {
		k.Status.ServedVersions = append(k.Status.ServedVersions, v.Name)
	}
	return p, nil
}

// equal reports whether two publications make the same installs. With a rollout, another revision
// reaches the objects later.
func (p *publication) equal(other *publication) bool {
	if p == nil || other == nil {
		return p == other
	}
	return apiequality.Semantic.DeepEqual(p.spec, other.spec) && p.keysVersion == other.keysVersion &&
		(p.spec.Rollout != nil || sameArtifact(p.artifact, other.artifact))
}

func sameArtifact(a, b artifact.Artifact) bool {
	return a.Digest == b.Digest && a.Revision == b.Revision
}

// loadKind reads the kind that the stack of an artifact serves. With a rollout, it keeps the
// revision.
func (s *Steps) loadKind(ctx context.Context, k *appsv1.KsctlKind, a artifact.Artifact) (*publication, error) {
	if p := s.Kinds.ofOwner(k.Name); p != nil {
		if c := p.current.Load(); c != nil && sameArtifact(c.source, a) && c.spec.Path == k.Spec.Path &&
			c.spec.Stack == k.Spec.Stack && (c.spec.Rollout == nil) == (k.Spec.Rollout == nil) {
			next := *c
			next.spec, next.source = k.Spec, a
			if k.Spec.Rollout == nil {
				next.artifact = a
			}
			return &next, nil
		}
	}
	tree, err := s.Content.Fetcher.Fetch(ctx, a)
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	next := &publication{spec: k.Spec, source: a, artifact: a, path: k.Spec.Path, stack: k.Spec.Stack}
	if next.template, err = stacks.LoadKind(tree.Root, k.Spec.Path, k.Spec.Stack); err != nil || k.Spec.Rollout == nil {
		return next, err
	}
	next.path = ""
	next.artifact, err = s.Kinds.Revisions.keep(ctx, k.Name, k.Spec.Stack,
		filepath.Join(tree.Root, filepath.FromSlash(next.template.Folder)), a.Revision)
	if p := s.Kinds.ofOwner(k.Name); p != nil {
		p.pruned = nil // it may be refused
	}
	return next, err
}

// readKeys sets the decryption keys of a publication.
func (s *Steps) readKeys(ctx context.Context, p *publication) error {
	p.keys, p.keysVersion = nil, ""
	if p.spec.Decryption == nil {
		return nil
	}
	name := s.keysSecret(p.spec)
	var secret corev1.Secret
	if err := s.Direct.Get(ctx, name, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return content.NewKeysNotFoundError(name.Namespace, name.Name)
		}
		return fmt.Errorf("spec.decryption: reading Secret %s: %w", name, err)
	}
	p.keys, p.keysVersion = secret.Data, secret.ResourceVersion
	return nil
}

// keysSecret returns the name of the Secret of spec.decryption.
func (s *Steps) keysSecret(spec appsv1.KsctlKindSpec) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(spec.SourceRef.Namespace, s.Kinds.Revisions.Namespace),
		Name: spec.Decryption.SecretRef.Name}
}

// refuse returns the outcome for a kind that must not be served; nil for another one.
func (s *Steps) refuse(k *appsv1.KsctlKind, t *stacks.KindTemplate, revision string) reconcile.Outcome {
	if v := k.Spec.StackVersion; v != "" && v != t.StackVersion {
		return reconcile.Stalled{Reason: appsv1.InvalidStackReason, Revision: revision,
			Err: fmt.Errorf("stack %q has version %s, but spec.stackVersion is %s", k.Spec.Stack, t.StackVersion, v)}
	}
	if slices.Contains(s.Groups, t.Group) {
		return nil
	}
	return reconcile.Stalled{Reason: appsv1.GroupNotAllowedReason, Revision: revision,
		Err: fmt.Errorf("stack %q serves %s.%s, but --kind-groups of the controller does not list the group",
			k.Spec.Stack, t.Kind, t.Group)}
}

// serve applies the CustomResourceDefinition and the ClusterRoles of a kind.
func (s *Steps) serve(ctx context.Context, req *reconcile.Request[*appsv1.KsctlKind],
	t *stacks.KindTemplate) (*apiextensionsv1.CustomResourceDefinition, error) {
	k := req.Object
	want, err := t.Definition()
	if err != nil {
		return nil, err
	}
	if err := s.checkRenamed(ctx, k, want.Name); err != nil {
		return nil, err
	}
	have, err := s.getDefinition(ctx, want.Name)
	if err != nil {
		return nil, err
	}
	if have != nil && !s.owns(k, have) {
		return nil, reconcile.NewTerminalError(appsv1.OwnedByAnotherReason,
			"CustomResourceDefinition %s exists, and KsctlKind %s did not create it: delete it, or serve the kind in "+
				"another group", want.Name, k.Name)
	}
	if have != nil {
		if err := s.checkSchemaChange(ctx, want, have); err != nil {
			return nil, err
		}
		addStoredVersions(want, have)
	}
	s.owners.Store(want.Name, k.Name) // before its events
	if k.Status.CRD == "" {           // a removal has to know it
		k.Status.CRD = want.Name
		if err := req.Persist(ctx, "creating CustomResourceDefinition "+want.Name); err != nil {
			return nil, err
		}
	}
	d, err := s.applyDefinition(ctx, k.Name, want, have)
	if err != nil {
		return nil, err
	}
	if err := s.rewriteStored(ctx, d); err != nil {
		return nil, err
	}
	return d, s.applyRoles(ctx, k.Name, t)
}

// checkRenamed returns an error if a KsctlKind serves a kind already, and its stack serves another
// one now.
func (s *Steps) checkRenamed(ctx context.Context, k *appsv1.KsctlKind, definition string) error {
	if k.Status.CRD == "" || k.Status.CRD == definition {
		return nil
	}
	served, err := s.getDefinition(ctx, k.Status.CRD)
	switch {
	case err != nil:
		return err
	case served != nil && s.owns(k, served):
		return reconcile.NewTerminalError(appsv1.InvalidStackReason,
			"the stack serves %s, but this KsctlKind serves %s: create another KsctlKind for it", definition,
			k.Status.CRD)
	}
	k.Status.CRD = "" // it was never created
	return nil
}

// owns reports whether a KsctlKind created an object.
func (s *Steps) owns(k *appsv1.KsctlKind, o client.Object) bool {
	return o.GetAnnotations()[appsv1.KindAnnotation] == s.ownerMark(k.Name)
}

// storedKind returns the stored version of the kind of a CustomResourceDefinition.
func storedKind(d *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionKind {
	gvk := schema.GroupVersionKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			gvk.Version = v.Name
		}
	}
	return gvk
}

// countObjects counts the objects of a kind.
func countObjects(objects []Object, current *publication) (out appsv1.KindObjects) {
	for i := range objects {
		o := &objects[i]
		ready := apimeta.FindStatusCondition(o.Status.Conditions, appsv1.ReadyCondition)
		out.Total++
		if ready != nil && ready.Status == "True" && ready.ObservedGeneration == o.Generation {
			out.Ready++
		}
		if current.isApplied(o) {
			out.Updated++
		}
	}
	return out
}

// isApplied reports whether an object has applied the revision of a publication.
func (p *publication) isApplied(o *Object) bool {
	if taken := o.Status.Artifact; p.spec.Rollout != nil {
		return taken != nil && taken.Digest == p.artifact.Digest && o.Status.LastAppliedRevision == taken.Revision
	}
	return o.Status.LastAppliedRevision == p.artifact.Revision
}

// Finalize implements reconcile.Steps. With the policy Refuse it serves the kind until there are no
// objects.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlKind]) reconcile.Outcome {
	k := req.Object
	if k.Status.CRD == "" {
		if err := s.Kinds.Revisions.prune(ctx, k.Name, func(string) bool { return false }); err != nil {
			return reconcile.Retry{Err: err}
		}
		return reconcile.Done{Message: "it served no kind"}
	}
	d, err := s.getDefinition(ctx, k.Status.CRD)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if d == nil || !s.owns(k, d) {
		return s.removed(ctx, k)
	}
	if !isEstablished(d) { // it never had objects; those of this kind belong to another definition
		return s.deleteDefinition(ctx, d)
	}
	deletes := k.Spec.DeletionPolicy == appsv1.KindDeletionDelete
	if d.DeletionTimestamp == nil && !deletes {
		_, _ = s.publish(ctx, req) // best effort: the objects are served while they exist
	}
	p, err := s.Kinds.start(k.Name, storedKind(d))
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	objects, out := p.list(ctx)
	if out != nil {
		return out
	}
	if len(objects) == 0 {
		if left, err := p.hasObjects(ctx); err != nil || left {
			return reconcile.Retry{Err: cmp.Or(err, errUnknownObjects), RequeueAfter: countDelay}
		}
		s.Kinds.remove(p) // a watch of a kind that is gone reports errors
		return s.deleteDefinition(ctx, d)
	}
	if deletes {
		if err := p.deleteAll(ctx, objects); err != nil {
			return reconcile.Retry{Err: err}
		}
		return reconcile.Waiting{On: fmt.Sprintf("%d objects of %s are being removed: %s", len(objects), p.key(),
			namesOf(objects)), Reason: appsv1.RemovingReason, For: waitsFor(p, objects)}
	}
	return reconcile.Waiting{On: fmt.Sprintf("%d objects of %s exist: %s; delete them, or set spec.deletionPolicy: "+
		"Delete", len(objects), p.key(), namesOf(objects)), Reason: appsv1.InUseReason, TimedOut: true,
		For: waitsFor(p, objects)}
}

// errUnknownObjects reports that the watch of a kind is late.
var errUnknownObjects = errors.New("the API server has objects of the kind that the watch has not reported yet")

// maxWaits is the maximum number of objects in status.waitsFor.
const maxWaits = 10

func waitsFor(p *publishedKind, objects []Object) (out []appsv1.WaitReference) {
	for i := range objects[:min(len(objects), maxWaits)] {
		out = append(out, appsv1.WaitReference{Type: appsv1.WaitInUse, Kind: p.gvk.Kind,
			Namespace: objects[i].Namespace, Name: objects[i].Name})
	}
	return out
}

// namesOf returns the names of objects for a message.
func namesOf(objects []Object) string {
	var names []string
	for i := range objects {
		names = append(names, objects[i].Namespace+"/"+objects[i].Name)
	}
	slices.Sort(names)
	return reconcile.JoinNames(names)
}

// deleteAll deletes objects.
func (p *publishedKind) deleteAll(ctx context.Context, objects []Object) error {
	var errs []error
	for i := range objects {
		if objects[i].DeletionTimestamp == nil {
			o := objects[i].DeepCopyObject().(*Object)
			errs = append(errs, client.IgnoreNotFound(p.client.Delete(ctx, o)))
		}
	}
	return errors.Join(errs...)
}

// deleteDefinition deletes the CustomResourceDefinition of a kind without objects. Its deletion
// wakes the KsctlKind.
func (s *Steps) deleteDefinition(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) reconcile.Outcome {
	if d.DeletionTimestamp == nil {
		u := unstructuredDefinition(d.Name)
		if err := client.IgnoreNotFound(s.Direct.Delete(ctx, u, client.Preconditions{UID: &d.UID})); err != nil {
			return reconcile.Retry{Err: err}
		}
	}
	return reconcile.Waiting{On: fmt.Sprintf("CustomResourceDefinition %s is being deleted", d.Name),
		Reason: appsv1.RemovingReason, For: []appsv1.WaitReference{{Type: appsv1.WaitDeletion,
			Kind: stacks.DefinitionKind.Kind, Name: d.Name}}}
}

// removed ends the removal of a kind whose CustomResourceDefinition is gone.
func (s *Steps) removed(ctx context.Context, k *appsv1.KsctlKind) reconcile.Outcome {
	if err := s.deleteRoles(ctx, k); err != nil {
		return reconcile.Retry{Err: err}
	}
	if err := s.Kinds.Revisions.prune(ctx, k.Name, func(string) bool { return false }); err != nil {
		return reconcile.Retry{Err: err}
	}
	if p := s.Kinds.ofOwner(k.Name); p != nil {
		s.Kinds.remove(p)
	}
	s.applied.forget(k.Status.CRD)
	return reconcile.Done{Message: k.Status.CRD + " is removed"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(types.NamespacedName) {}

// EnsureWatched watches the objects of a kind that was served before, so that they are finalized
// also while the KsctlKind is suspended, or refused.
func (s *Steps) EnsureWatched(ctx context.Context, k *appsv1.KsctlKind) error {
	if k.Status.CRD == "" {
		return nil
	}
	p := s.Kinds.ofOwner(k.Name)
	if p == nil {
		d, err := s.getDefinition(ctx, k.Status.CRD)
		if err != nil || d == nil || !s.owns(k, d) {
			return err
		}
		s.owners.Store(k.Status.CRD, k.Name)
		if !isEstablished(d) {
			return nil
		}
		if p, err = s.Kinds.start(k.Name, storedKind(d)); err != nil {
			return err
		}
	}
	p.spec.Store(&k.Spec)
	if k.Spec.Rollout == nil || k.Status.Artifact == nil || p.current.Load() != nil {
		return nil
	}
	// Without its source, too, each object is reconciled at its revision.
	settings := &publication{spec: k.Spec}
	if err := s.readKeys(ctx, settings); err != nil {
		return err
	}
	complete, err := p.keptRevision(ctx, k.Status.Artifact, settings)
	if err == nil && p.current.CompareAndSwap(nil, complete) {
		s.Published(p.key())
	}
	return err
}
