package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// dependencyFunc returns the keys of the installs that an install depends on.
type dependencyFunc func(*appsv1.KsctlInstall) []types.NamespacedName

// dependencyPath returns a path of dependencies from an install to another install, or back to
// itself. It returns nil if there is none.
func (s *Steps) dependencyPath(ctx context.Context, from *appsv1.KsctlInstall, to types.NamespacedName,
	dependenciesOf dependencyFunc) ([]string, error) {
	seen := map[types.NamespacedName]bool{}
	var walk func(at *appsv1.KsctlInstall, prefix []string) ([]string, error)
	walk = func(at *appsv1.KsctlInstall, prefix []string) ([]string, error) {
		for _, name := range dependenciesOf(at) {
			if seen[name] {
				continue
			}
			seen[name] = true
			route := slices.Concat(prefix, []string{name.String()})
			if name == to {
				return route, nil
			}
			next := &appsv1.KsctlInstall{}
			if err := s.Client.Get(ctx, name, next, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			if found, err := walk(next, route); found != nil || err != nil {
				return found, err
			}
		}
		return nil, nil
	}
	return walk(from, []string{client.ObjectKeyFromObject(from).String()})
}

// withObjectDependencies returns a dependencyFunc that also follows dependencies on objects, to the
// installs with these objects in their inventory. It reads the stored inventories, so that the
// result is the same for each install.
func (s *Steps) withObjectDependencies(ctx context.Context, dependents []appsv1.KsctlInstall) (dependencyFunc, error) {
	if len(dependents) == 0 {
		return dependency.Installs, nil
	}
	owners := map[string][]types.NamespacedName{}
	for i := range dependents {
		for _, r := range dependency.ObjectRefs(&dependents[i]) {
			owners[r.ID()] = nil
		}
	}
	addOwner := func(name types.NamespacedName, entries []appsv1.InventoryEntry) {
		for _, e := range entries {
			names, wanted := owners[e.ID]
			if !wanted || e.State == appsv1.EntryIntended || e.State == appsv1.EntryAdopted ||
				e.State == appsv1.EntryShared || e.State == appsv1.EntryContributed {
				continue // the object would stay without that install
			}
			owners[e.ID] = append(names, name)
		}
	}
	var installs appsv1.KsctlInstallList
	if err := s.Client.List(ctx, &installs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	remote := map[types.NamespacedName]bool{}
	for i := range installs.Items {
		in := &installs.Items[i]
		switch name := client.ObjectKeyFromObject(in); {
		case in.Status.Inventory == nil:
		case target.InstallCluster(in) != plan.LocalCluster:
			remote[name] = true
		default:
			addOwner(name, in.Status.Inventory.Entries)
		}
	}
	var chunks appsv1.KsctlInventoryList
	if err := s.Client.List(ctx, &chunks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range chunks.Items {
		c := &chunks.Items[i]
		if name := (types.NamespacedName{Namespace: c.Namespace,
			Name: c.Owner.Name}); c.Owner.Kind == appsv1.KsctlInstallKind && !remote[name] {
			addOwner(name, c.Entries)
		}
	}
	return func(in *appsv1.KsctlInstall) []types.NamespacedName {
		out := dependency.Installs(in)
		for _, r := range dependency.ObjectRefs(in) {
			out = append(out, owners[r.ID()]...)
		}
		return out
	}, nil
}
