package engine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// Field managers that apply whole manifests and may leave no mark of their own.
const (
	// argoManager is that of Argo CD, whatever way it applies: ArgoCDSSAManager in its common/common.go.
	argoManager = "argocd-controller"
	// kubectlManager is that of kubectl apply --server-side.
	kubectlManager = "kubectl"
)

// ownerMarks are the fields by which tools know what they applied: who has one of
// them applied the object.
var ownerMarks = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", corev1.LastAppliedConfigAnnotation))
	for _, mark := range live.ToolMarks() {
		set.Insert(fieldpath.MakePathOrDie(mark[0], mark[1], mark[2]))
	}
	return set
}()

// takesOver is true when an object that is there becomes the owner's for good.
func (a *actor) takesOver(state appsv1.EntryState) bool {
	return state == appsv1.EntryApplied && a.owner.Policies().Adopt == appsv1.AdoptAlways
}

// takeFields gives our entry what the tools applied that had an object so far, so that
// the apply which follows takes out what the stack does not have: first of all the
// labels by which they would delete the object. Without that every field would be
// theirs as well, and stay when it leaves the stack.
func (a *actor) takeFields(ctx context.Context, it *Item, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	entries, taken, err := takeFields(u.GetManagedFields(), u.GetAPIVersion(), it.Ignore)
	if err != nil || !taken {
		return u, err
	}
	return a.merge(ctx, WriteUpdate, a.resource(it), it.Name, map[string]any{"metadata": map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "managedFields": entries}})
}

// takeFields is what managedFields become, and whether that is another thing than they
// were. Ignored paths stay with whoever has them. Of entries in another version than
// ours only metadata is taken: other paths may mean something else there.
func takeFields(entries []metav1.ManagedFieldsEntry, version string, ignore []string) (out []metav1.ManagedFieldsEntry, taken bool, err error) {
	former, err := formerManagers(entries)
	if err != nil || len(former) == 0 {
		return nil, false, err
	}
	ignored := make([][]string, 0, len(ignore))
	for _, p := range ignore {
		if tokens, err := live.ParsePointer(p); err == nil {
			ignored = append(ignored, tokens)
		}
	}
	ours := metav1.ManagedFieldsEntry{Manager: live.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version, FieldsType: "FieldsV1"}
	if i := slices.IndexFunc(entries, isOurs); i >= 0 {
		ours = entries[i]
	}
	mine, err := readSet(ours.FieldsV1)
	if err != nil {
		return nil, false, err
	}
	for i := range entries {
		e := entries[i]
		if isOurs(e) {
			continue
		}
		if !former[e.Manager] || e.Subresource != "" {
			out = append(out, e)
			continue
		}
		theirs, err := readSet(e.FieldsV1)
		if err != nil {
			return nil, false, err
		}
		rest := fieldpath.NewSet()
		theirs.Iterate(func(p fieldpath.Path) {
			if leftOut(p, ignored) || (e.APIVersion != ours.APIVersion && !inMetadata(p)) {
				rest.Insert(p.Copy())
			} else {
				mine.Insert(p.Copy())
				taken = true
			}
		})
		if rest.Empty() {
			continue
		}
		if e.FieldsV1, err = writeSet(rest); err != nil {
			return nil, false, err
		}
		out = append(out, e)
	}
	ours.FieldsV1, err = writeSet(mine)
	return append(out, ours), taken, err
}

// formerManagers are the field managers of the tools that applied an object.
func formerManagers(entries []metav1.ManagedFieldsEntry) (map[string]bool, error) {
	former := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if e.Manager == live.FieldManager || e.Subresource != "" {
			continue
		}
		set, err := readSet(e.FieldsV1)
		if err != nil {
			return nil, err
		}
		if e.Manager == argoManager || !set.Intersection(ownerMarks).Empty() ||
			(e.Manager == kubectlManager && e.Operation == metav1.ManagedFieldsOperationApply) {
			former[e.Manager] = true
		}
	}
	return former, nil
}

func isOurs(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == live.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func inMetadata(p fieldpath.Path) bool {
	return p[0].FieldName != nil && *p[0].FieldName == "metadata"
}

// leftOut is true for what is at, in or around an ignored path. An item of a list has
// no number in a field path: it counts as any of them.
func leftOut(p fieldpath.Path, ignored [][]string) bool {
	return slices.ContainsFunc(ignored, func(tokens []string) bool {
		for i := range min(len(p), len(tokens)) {
			if p[i].FieldName != nil && *p[i].FieldName != tokens[i] {
				return false
			}
		}
		return true
	})
}

// appliedByArgo is true for a label that Argo CD set, and not a person or a chart that
// something else applied.
func appliedByArgo(u *unstructured.Unstructured, label string) bool {
	field := fieldpath.MakePathOrDie("metadata", "labels", label)
	return slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		if e.Manager != argoManager {
			return false
		}
		set, err := readSet(e.FieldsV1)
		return err == nil && set.Has(field)
	})
}
