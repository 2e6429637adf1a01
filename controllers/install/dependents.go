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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/stacks"
)

// dependents names the installs that depend on one which is being removed, or asked to go, or
// on an object that goes with it. One that it depends on itself is not waited for: neither
// could ever go. Nor is one that it brought, which goes with it.
func (s *Steps) dependents(ctx context.Context, o *owner) ([]string, error) {
	in := o.req.Object
	me := client.ObjectKeyFromObject(in)
	s.Plans.awaits(me, true) // before anybody is looked for: who goes from now on wakes it
	all, of, err := s.dependOn(ctx, o)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.SortedFunc(maps.Keys(all), byName) {
		d := all[name]
		waited, err := s.waitedFor(ctx, in, d.install, of)
		if err != nil {
			return nil, err
		}
		if waited {
			out = append(out, d.words(me.Name))
		}
	}
	s.Plans.awaits(me, len(out) > 0)
	return out, nil
}

func byName(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// dependent is an install that needs what is to go.
type dependent struct {
	install *appsv1.KsctlInstall
	// on is the object that it needs; nil: the install as a whole.
	on *stacks.Ref
}

func (d *dependent) words(of string) string {
	name, needs := client.ObjectKeyFromObject(d.install), ""
	if d.on != nil {
		needs, of = fmt.Sprintf("needs %s and ", d.on), "that"
	}
	if d.install.DeletionTimestamp != nil {
		return fmt.Sprintf("KsctlInstall %s, which %sis being removed", name, needs)
	}
	return fmt.Sprintf("KsctlInstall %s, which %sstays (delete it, too, or take %s out of its dependsOn)", name, needs, of)
}

// dependOn finds those that depend on an install or on an object that goes with it, and
// how to follow dependencies further.
func (s *Steps) dependOn(ctx context.Context, o *owner) (map[types.NamespacedName]*dependent, needs, error) {
	me := client.ObjectKeyFromObject(o.req.Object)
	var ofInstall, ofObject appsv1.KsctlInstallList
	for value, list := range map[string]*appsv1.KsctlInstallList{reconcile.FieldValue(Kind, me.Namespace, me.Name): &ofInstall, onObjects: &ofObject} {
		if err := s.Client.List(ctx, list, client.MatchingFields{byDependency: value}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case o.key.Cluster != engine.LocalCluster:
		ofObject.Items = nil // what others depend on is in this cluster
	case len(ofObject.Items) > 0:
		s.Engine.Observe(ctx, s.Targets.Local, o)
	}
	goes := s.goes(ctx, o)
	out := map[types.NamespacedName]*dependent{}
	for i := range ofObject.Items {
		d := &ofObject.Items[i]
		for _, ref := range dependency.On(d, goes) {
			if ref.Namespace == "" || ref.Namespace == d.Namespace || !s.Content.Sources.NoCrossNamespace {
				out[client.ObjectKeyFromObject(d)] = &dependent{install: d, on: &ref}
				o.heirs.expect(ref.ID(), client.ObjectKeyFromObject(d))
			}
		}
	}
	for i := range ofInstall.Items {
		d := &ofInstall.Items[i]
		out[client.ObjectKeyFromObject(d)] = &dependent{install: d}
	}
	if len(out) == 0 {
		return nil, nil, nil
	}
	of, err := s.withObjects(ctx, ofObject.Items)
	return out, of, err
}

// goes tells which objects go with an install: those that are there as its own, that are
// not kept and that nobody else takes over.
func (s *Steps) goes(ctx context.Context, o *owner) func(id string) bool {
	p := o.Policies()
	return func(id string) bool {
		e, listed := o.inv.Get(id)
		if !listed || e.State == appsv1.EntryIntended || p.Spares(&e) {
			return false
		}
		heir, _ := p.Heir(id)
		return heir == nil && s.Engine.Holds(ctx, s.Targets.Local, o, id)
	}
}

// waitedFor is true for a dependent that has to go before an install.
func (s *Steps) waitedFor(ctx context.Context, in, d *appsv1.KsctlInstall, of needs) (bool, error) {
	me, name := client.ObjectKeyFromObject(in), client.ObjectKeyFromObject(d)
	if name == me || removedWhole(d) {
		return false, nil
	}
	if brought, err := s.broughtBy(ctx, d, me); brought || err != nil {
		return false, err
	}
	mutual, err := s.path(ctx, in, name, of)
	return mutual == nil, err
}

// broughtBy is true for an install that is an object of another one, or of one that is.
func (s *Steps) broughtBy(ctx context.Context, in *appsv1.KsctlInstall, by types.NamespacedName) (bool, error) {
	for seen := map[types.NamespacedName]bool{}; ; {
		parent, ok := s.parent(in)
		if !ok || seen[parent] {
			return false, nil
		}
		if parent == by {
			return true, nil
		}
		seen[parent] = true
		in = &appsv1.KsctlInstall{}
		if err := s.Client.Get(ctx, parent, in, client.UnsafeDisableDeepCopy); err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
}

// parent is the install that brought one, as its mark says. One that was there before
// stays when that goes.
func (s *Steps) parent(in *appsv1.KsctlInstall) (types.NamespacedName, bool) {
	m, err := live.ParseMark(in.Annotations[live.MarkAnnotation])
	self := stacks.Ref{Group: appsv1.GroupVersion.Group, Kind: Kind, Namespace: in.Namespace, Name: in.Name}
	if err != nil || m.ID != self.ID() || in.Annotations[live.AdoptedAnnotation] != "" {
		return types.NamespacedName{}, false
	}
	k, ok := engine.ParseOwnerKey(m.Owner)
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name},
		ok && k.Kind == Kind && k.Installation == s.Installation && k.Cluster == engine.LocalCluster
}
