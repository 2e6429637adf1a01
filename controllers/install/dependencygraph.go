package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

// needs tells which installs one depends on.
type needs func(*appsv1.KsctlInstall) []types.NamespacedName

// path returns the way from an install over what it needs to another one, or back
// to itself; nil when there is none.
func (s *Steps) path(ctx context.Context, from *appsv1.KsctlInstall, to types.NamespacedName, of needs) ([]string, error) {
	seen := map[types.NamespacedName]bool{}
	var walk func(at *appsv1.KsctlInstall, way []string) ([]string, error)
	walk = func(at *appsv1.KsctlInstall, way []string) ([]string, error) {
		for _, name := range of(at) {
			if seen[name] {
				continue
			}
			seen[name] = true
			further := slices.Concat(way, []string{name.String()})
			if name == to {
				return further, nil
			}
			next := &appsv1.KsctlInstall{}
			if err := s.Client.Get(ctx, name, next, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			if found, err := walk(next, further); found != nil || err != nil {
				return found, err
			}
		}
		return nil, nil
	}
	return walk(from, []string{client.ObjectKeyFromObject(from).String()})
}

// withObjects also follows dependencies on objects, to the installs that have them. It
// reads inventories as they were last written down: every install sees the same.
func (s *Steps) withObjects(ctx context.Context, dependents []appsv1.KsctlInstall) (needs, error) {
	if len(dependents) == 0 {
		return dependencyNames, nil
	}
	owners := map[string][]types.NamespacedName{}
	for i := range dependents {
		for _, r := range dependency.Objects(&dependents[i]) {
			owners[r.ID()] = nil
		}
	}
	note := func(name types.NamespacedName, entries []appsv1.InventoryEntry) {
		for i := range entries {
			of, wanted := owners[entries[i].ID]
			if s := entries[i].State; !wanted || s == appsv1.EntryIntended || s == appsv1.EntryAdopted || s == appsv1.EntryShared {
				continue // it would stay there without that install
			}
			owners[entries[i].ID] = append(of, name)
		}
	}
	var installs appsv1.KsctlInstallList
	if err := s.Client.List(ctx, &installs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	elsewhere := map[types.NamespacedName]bool{}
	for i := range installs.Items {
		in := &installs.Items[i]
		switch name := client.ObjectKeyFromObject(in); {
		case in.Status.Inventory == nil:
		case !isLocal(in):
			elsewhere[name] = true
		default:
			note(name, in.Status.Inventory.Entries)
		}
	}
	var chunks appsv1.KsctlInventoryList
	if err := s.Client.List(ctx, &chunks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range chunks.Items {
		c := &chunks.Items[i]
		if name := (types.NamespacedName{Namespace: c.Namespace, Name: c.Owner.Name}); c.Owner.Kind == Kind && !elsewhere[name] {
			note(name, c.Entries)
		}
	}
	return func(in *appsv1.KsctlInstall) []types.NamespacedName {
		out := dependencyNames(in)
		for _, r := range dependency.Objects(in) {
			out = append(out, owners[r.ID()]...)
		}
		return out
	}, nil
}
