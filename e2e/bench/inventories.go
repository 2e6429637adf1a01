package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// inventoryEntries returns the entries of an inventory with the objects.
func inventoryEntries(objects []*unstructured.Unstructured, state appsv1.EntryState) []appsv1.InventoryEntry {
	out := make([]appsv1.InventoryEntry, 0, len(objects))
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		out = append(out, appsv1.InventoryEntry{Component: "main", State: state, Version: gvk.Version,
			ID: strings.Join([]string{o.GetNamespace(), o.GetName(), gvk.Group, gvk.Kind}, "_")})
	}
	return out
}

// writeInventories writes the KsctlInventory objects of an install with more objects than its
// status can list: as intended or as applied. With an empty state it deletes them.
func (f *floor) writeInventories(ctx context.Context, s installSpec, objects []*unstructured.Unstructured,
	state appsv1.EntryState) error {
	if len(objects) <= plan.MaxStatusEntries {
		return nil
	}
	var inventories []*appsv1.KsctlInventory
	for part := range slices.Chunk(objects, plan.MaxStatusEntries) {
		name := fmt.Sprintf("%s-%d", s.Name, len(inventories))
		inventories = append(inventories, &appsv1.KsctlInventory{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
			Name: name},
			Owner:   appsv1.InventoryOwner{Group: appsv1.GroupVersion.Group, Kind: "KsctlInstall", Name: s.Name},
			Entries: inventoryEntries(part, state)})
	}
	return forEach(ctx, floorConcurrency, inventories, func(ctx context.Context, c *appsv1.KsctlInventory) error {
		switch state {
		case appsv1.EntryIntended:
			return f.client.Create(ctx, c, floorFieldOwner)
		case "":
			return client.IgnoreNotFound(f.client.Delete(ctx, c))
		}
		body, err := json.Marshal(map[string]any{"entries": c.Entries})
		if err != nil {
			return err
		}
		return f.client.Patch(ctx, c, client.RawPatch(types.MergePatchType, body), floorFieldOwner)
	})
}
