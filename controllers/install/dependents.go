package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/stacks"
)

// blockingDependents describes the installs that must be removed before an install that is being
// deleted or removed by a KsctlRemove: they depend on the install, or on an object that is removed
// with it. Two kinds of dependents do not block the removal: installs that the install depends on
// itself, since neither could ever be removed, and installs that it created, since these are
// removed with it.
func (s *Steps) blockingDependents(ctx context.Context, o *owner) ([]wait, error) {
	in := o.req.Object
	key := client.ObjectKeyFromObject(in)
	// Set before the lookup, so that a dependent that is removed from now on enqueues the install.
	s.Plans.SetAwaitingDependents(key, true)
	all, dependenciesOf, err := s.findDependents(ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := s.describeBlocking(ctx, in, all, dependenciesOf)
	if err == nil {
		s.Plans.SetAwaitingDependents(key, len(out) > 0)
	}
	return out, err
}

// AwaitDependents returns the outcome while other installs depend on an install itself. It is nil
// if none blocks its removal.
func (s *Steps) AwaitDependents(ctx context.Context, in *appsv1.KsctlInstall) reconcile.Outcome {
	dependents, err := s.dependentsOfInstall(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	blocking, err := s.describeBlocking(ctx, in, dependents, dependency.Installs)
	switch {
	case err != nil:
		return reconcile.Retry{Err: err}
	case len(blocking) == 0:
		return nil
	}
	return dependentsOutcome(blocking)
}

// describeBlocking describes the dependents that must be removed before an install, sorted by name.
func (s *Steps) describeBlocking(ctx context.Context, in *appsv1.KsctlInstall,
	dependents map[types.NamespacedName]*dependent, dependenciesOf dependencyFunc) ([]wait, error) {
	var out []wait
	for _, d := range dependents {
		blocks, err := s.blocksRemoval(ctx, in, d.install, dependenciesOf)
		if err != nil {
			return nil, err
		}
		if blocks {
			name := client.ObjectKeyFromObject(d.install)
			out = append(out,
				wait{d.describe(in.Name),
					appsv1.WaitReference{Type: appsv1.WaitDependents, Kind: appsv1.KsctlInstallKind,
						Namespace: name.Namespace, Name: name.Name}})
		}
	}
	slices.SortFunc(out, func(a, b wait) int { return strings.Compare(a.message, b.message) })
	return out, nil
}

// dependentsOutcome is the outcome while dependents block the removal of an install.
func dependentsOutcome(dependents []wait) reconcile.Outcome {
	return reconcile.Waiting{On: "dependents must be removed first: " + reconcile.JoinNames(messagesOf(dependents)),
		For: referencesOf(dependents), Reason: appsv1.DependentsExistReason}
}

// dependent is an install that depends on an install that is being removed, or on one of its
// objects.
type dependent struct {
	install *appsv1.KsctlInstall
	// object is the object that the install depends on. It is nil for a dependency on the install
	// itself.
	object *stacks.Ref
}

// describe returns a message about a dependent of the named install, with the way to resolve the
// dependency.
func (d *dependent) describe(dependedOn string) string {
	name, needs := client.ObjectKeyFromObject(d.install), ""
	if d.object != nil {
		needs, dependedOn = fmt.Sprintf("needs %s and ", d.object), "that object"
	}
	if d.install.DeletionTimestamp != nil {
		return fmt.Sprintf("KsctlInstall %s, which %sis being removed", name, needs)
	}
	return fmt.Sprintf("KsctlInstall %s, which %sis not being removed (delete it, or remove %s from its "+
		"spec.dependsOn)", name, needs, dependedOn)
}

// findDependents returns the installs that depend on an install, or on an object that is removed
// with it. It also returns the function that follows their dependencies further.
func (s *Steps) findDependents(ctx context.Context,
	o *owner) (map[types.NamespacedName]*dependent, dependencyFunc, error) {
	out := map[types.NamespacedName]*dependent{}
	var ofObject []appsv1.KsctlInstall
	if o.key.Cluster == plan.LocalCluster { // objects in spec.dependsOn are in the local cluster
		var err error
		if ofObject, err = s.listDependents(ctx, dependsOnObjects); err != nil {
			return nil, nil, err
		}
	}
	if len(ofObject) > 0 {
		s.Engine.WatchKinds(ctx, s.Targets.Local, o)
	}
	isRemoved := s.removedWith(ctx, o)
	for i := range ofObject {
		d := &ofObject[i]
		for _, ref := range dependency.ObjectRefsIn(d, isRemoved) {
			if ref.Namespace == "" || ref.Namespace == d.Namespace || !s.Content.Sources.NoCrossNamespace {
				out[client.ObjectKeyFromObject(d)] = &dependent{install: d, object: &ref}
				o.handover.AwaitClaim(ref.ID(), client.ObjectKeyFromObject(d))
			}
		}
	}
	ofInstall, err := s.dependentsOfInstall(ctx, o.req.Object)
	if err != nil {
		return nil, nil, err
	}
	if maps.Copy(out, ofInstall); len(out) == 0 {
		return nil, nil, nil
	}
	dependenciesOf, err := s.withObjectDependencies(ctx, ofObject)
	return out, dependenciesOf, err
}

// dependentsOfInstall returns the installs that depend on an install itself.
func (s *Steps) dependentsOfInstall(ctx context.Context,
	in *appsv1.KsctlInstall) (map[types.NamespacedName]*dependent, error) {
	installs, err := s.listDependents(ctx, reconcile.IndexValue(s.kind(), in.Namespace, in.Name))
	out := map[types.NamespacedName]*dependent{}
	for i := range installs {
		out[client.ObjectKeyFromObject(&installs[i])] = &dependent{install: &installs[i]}
	}
	return out, err
}

// listDependents returns the installs with a value in dependsOnIndex.
func (s *Steps) listDependents(ctx context.Context, value string) ([]appsv1.KsctlInstall, error) {
	var list appsv1.KsctlInstallList
	err := s.Client.List(ctx, &list, client.MatchingFields{dependsOnIndex: value}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// removedWith returns a function that reports whether an object is removed with an install: the
// object exists and belongs to the install, it is not kept, and no other install takes it over.
func (s *Steps) removedWith(ctx context.Context, o *owner) func(id string) bool {
	p := o.Policies()
	return func(id string) bool {
		e, listed := o.inv.Get(id)
		if !listed || e.State == appsv1.EntryIntended || p.Retains(&e) {
			return false
		}
		return p.HandoverTo(id).To == nil && s.Engine.MayHaveObject(ctx, s.Targets.Local, o, id)
	}
}

// blocksRemoval reports whether dependent d must be removed before install in.
func (s *Steps) blocksRemoval(ctx context.Context, in, d *appsv1.KsctlInstall,
	dependenciesOf dependencyFunc) (bool, error) {
	key, name := client.ObjectKeyFromObject(in), client.ObjectKeyFromObject(d)
	if name == key || handover.IsFullyRemoved(d) {
		return false, nil
	}
	if installed, err := s.isInstalledBy(ctx, d, key); installed || err != nil {
		return false, err
	}
	mutual, err := s.dependencyPath(ctx, in, name, dependenciesOf)
	return mutual == nil, err
}

// isInstalledBy reports whether an install is an object of another install, directly or through
// further installs.
func (s *Steps) isInstalledBy(ctx context.Context, in *appsv1.KsctlInstall,
	ancestor types.NamespacedName) (bool, error) {
	for seen := map[types.NamespacedName]bool{}; ; {
		parent, ok := s.parentInstall(in)
		if !ok || seen[parent] {
			return false, nil
		}
		if parent == ancestor {
			return true, nil
		}
		seen[parent] = true
		in = &appsv1.KsctlInstall{}
		if err := s.Client.Get(ctx, parent, in, client.UnsafeDisableDeepCopy); err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
}

// parentInstall returns the install that created an install, according to its mark. An adopted
// install has no parent: it stays when the other install is removed.
func (s *Steps) parentInstall(in *appsv1.KsctlInstall) (types.NamespacedName, bool) {
	m, err := live.ParseMark(in.Annotations[live.MarkAnnotation])
	self := stacks.Ref{Group: appsv1.GroupVersion.Group, Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace,
		Name: in.Name}
	if err != nil || m.ID != self.ID() || in.Annotations[live.AdoptedAnnotation] != "" {
		return types.NamespacedName{}, false
	}
	k, ok := plan.ParseOwnerKey(m.Owner)
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name},
		ok && k.Kind == appsv1.KsctlInstallKind && k.Installation == s.Installation && k.Cluster == plan.LocalCluster
}
