package engine

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// Field managers of tools that apply whole manifests, and may set no label or annotation of their
// own.
const (
	// argoManager is the field manager of Argo CD for every way in which it applies:
	// ArgoCDSSAManager in its common/common.go.
	argoManager = "argocd-controller"
	// kubectlManager is the field manager of kubectl apply --server-side.
	kubectlManager = "kubectl"
	// helmManager and helmControllerManager are the field managers of Helm and helm-controller.
	// They do not mark the CRDs in crds/ and hooks.
	helmManager           = "helm"
	helmControllerManager = "helm-controller"
)

// wholeManifestManagers never write only a part of an object, unlike kubectlManager.
var wholeManifestManagers = []string{argoManager, helmManager, helmControllerManager}

// toolTrackingFields are the labels and annotations by which tools track the objects that they
// applied. A field manager that owns one of them has applied the object.
var toolTrackingFields = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", corev1.LastAppliedConfigAnnotation))
	for _, mark := range live.TrackingFields() {
		set.Insert(fieldpath.MakePathOrDie(mark[0], mark[1], mark[2]))
	}
	return set
}()

// takesOver is true when an existing object is taken over permanently.
func (a *executor) takesOver(state appsv1.EntryState) bool {
	policies := a.owner.Policies()
	return state == appsv1.EntryApplied && policies.TakesOver()
}

// migrateFieldManager makes us the owner of the fields that the former tools of an object applied,
// so that the next apply removes those that the stack does not have: above all the labels by which
// these tools would delete the object. Otherwise the tools would co-own every field, and a field
// that is removed from the stack would stay.
func (a *executor) migrateFieldManager(ctx context.Context, it *plan.Item,
	u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ignored, err := ignoredFields(u, it.Ignore)
	if err != nil {
		return nil, err
	}
	entries, changed, err := migrateManagedFields(u.GetManagedFields(), u.GetAPIVersion(), ignored)
	if err != nil || !changed {
		return u, err
	}
	return a.mergePatch(ctx, WriteUpdate, a.resource(it), it.Name, map[string]any{"metadata": map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "managedFields": entries}})
}

// migrateManagedFields returns the new managedFields of migrateFieldManager, and true if they
// differ from the old ones. Ignored paths keep their owners. Of entries in another version than
// ours, only metadata is migrated: other paths may have another meaning there.
func migrateManagedFields(entries []metav1.ManagedFieldsEntry, version string,
	ignore []string) (out []metav1.ManagedFieldsEntry, changed bool, err error) {
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
	ours := metav1.ManagedFieldsEntry{Manager: live.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: version, FieldsType: "FieldsV1"}
	if i := slices.IndexFunc(entries, isOwnEntry); i >= 0 {
		ours = entries[i]
	}
	mine, err := readSet(ours.FieldsV1)
	if err != nil {
		return nil, false, err
	}
	for i := range entries {
		e := entries[i]
		if isOwnEntry(e) {
			continue
		}
		if !former[e.Manager] || e.Subresource != "" {
			out = append(out, e)
			continue
		}
		rest, moved, err := moveFields(e.FieldsV1, mine, func(p fieldpath.Path) bool {
			return !isIgnored(p, ignored) && (e.APIVersion == ours.APIVersion || inMetadata(p))
		})
		if err != nil {
			return nil, false, err
		}
		changed = changed || moved
		if rest.Empty() {
			continue
		}
		if e.FieldsV1, err = writeSet(rest); err != nil {
			return nil, false, err
		}
		out = append(out, e)
	}
	ours.FieldsV1, err = writeSet(mine)
	return append(out, ours), changed, err
}

// formerManagers returns the field managers of the tools that applied an object.
func formerManagers(entries []metav1.ManagedFieldsEntry) (map[string]bool, error) {
	former := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if e.Manager == live.FieldManager || live.IsContributionManager(e.Manager) || e.Subresource != "" {
			continue
		}
		set, err := readSet(e.FieldsV1)
		if err != nil {
			return nil, err
		}
		if slices.Contains(wholeManifestManagers, e.Manager) || !set.Intersection(toolTrackingFields).Empty() ||
			(e.Manager == kubectlManager && e.Operation == metav1.ManagedFieldsOperationApply) {
			former[e.Manager] = true
		}
	}
	return former, nil
}

func isOwnEntry(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == live.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func inMetadata(p fieldpath.Path) bool {
	return p[0].FieldName != nil && *p[0].FieldName == "metadata"
}

// ignoredFields returns the JSON pointers of the fields of an object to which ignored paths lead.
func ignoredFields(u *unstructured.Unstructured, ignore []string) ([]string, error) {
	kept, err := keptFields(u, ignore)
	var out []string
	for _, k := range kept {
		if slices.Contains(ignore, k.Path) { // else the object was scaled
			out = append(out, cmp.Or(k.At, k.Path))
		}
	}
	return out, err
}

// isIgnored is true for a path that is equal to, below or above an ignored field. Field paths have
// no list indexes: a list item matches every index.
func isIgnored(p fieldpath.Path, ignored [][]string) bool {
	return slices.ContainsFunc(ignored, func(tokens []string) bool {
		for i := range min(len(p), len(tokens)) {
			if !matchesToken(p[i], tokens[i]) {
				return false
			}
		}
		return true
	})
}

func matchesToken(e fieldpath.PathElement, token string) bool {
	switch {
	case e.FieldName != nil:
		return *e.FieldName == token
	case e.Key != nil && live.IsItemToken(token):
		key, err := fieldpath.SerializePathElement(e)
		return err == nil && key == token
	default:
		return true
	}
}

// appliedByArgo is true for a label that Argo CD set; false if a user set it, or a chart that
// another tool applied.
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
