package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// reclaimListItems makes us the owner of all items in the lists that the API server rejected in a
// correction, so that the next apply removes the undesired ones. A client that changes the key of
// an item, such as the port of a Service, adds an item beside ours, and both together may be
// invalid. It returns true if there were such items.
func (a *executor) reclaimListItems(ctx context.Context, act *plan.Action, uid types.UID, cause error) (bool, error) {
	lists, err := a.rejectedLists(ctx, act.Item, cause)
	if err != nil || len(lists) == 0 {
		return false, err
	}
	r := a.resource(act.Item)
	u, err := r.Get(ctx, act.Item.Name, metav1.GetOptions{})
	if err != nil || u.GetUID() != uid {
		return false, err
	}
	entries, moved, err := claimListItems(u.GetManagedFields(), lists)
	if err != nil || !moved {
		return false, err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": u.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
	})
	if err != nil {
		return false, err
	}
	if u, err = a.patch(ctx, WriteUpdate, r, act.Item.Name, types.JSONPatchType, patch); err != nil {
		return false, err
	}
	_, err = a.target.Index.Observe(u)
	return true, err
}

// rejectedLists returns the paths of the lists of a manifest that an error of the API server names,
// without ignored paths.
func (a *executor) rejectedLists(ctx context.Context, it *plan.Item, cause error) ([][]string, error) {
	details := errorDetails(cause)
	if details == nil {
		return nil, nil
	}
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil, err
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(manifest, &obj); err != nil {
		return nil, err
	}
	var lists [][]string
	for _, c := range details.Causes {
		field, _, _ := strings.Cut(c.Field, "[")
		path := strings.Split(field, ".")
		pointer := "/" + strings.Join(path, "/")
		ignored := slices.ContainsFunc(it.Ignore, func(p string) bool {
			return p == pointer || strings.HasPrefix(p, pointer+"/") || strings.HasPrefix(pointer, p+"/")
		})
		if _, isList, err := unstructured.NestedSlice(obj, path...); err == nil && isList && !ignored {
			lists = append(lists, path)
		}
	}
	return lists, nil
}

// claimListItems moves the items of lists from the managedFields entries of others to our entry.
// moved is true if there were any.
func claimListItems(entries []metav1.ManagedFieldsEntry,
	lists [][]string) (out []metav1.ManagedFieldsEntry, moved bool, err error) {
	ours := slices.IndexFunc(entries, isOwnEntry)
	if ours < 0 {
		return nil, false, nil
	}
	mine, err := readSet(entries[ours].FieldsV1)
	if err != nil {
		return nil, false, err
	}
	out = slices.Clone(entries)
	for i := range out {
		// The same fields may have other paths in another version. Contributions keep their items.
		if i == ours || out[i].FieldsV1 == nil || out[i].Subresource != "" ||
			out[i].APIVersion != out[ours].APIVersion || live.IsContributionManager(out[i].Manager) {
			continue
		}
		rest, some, err := moveFields(out[i].FieldsV1, mine, func(p fieldpath.Path) bool {
			return isListItem(p, lists)
		})
		if err != nil {
			return nil, false, err
		}
		moved = moved || some
		if out[i].FieldsV1, err = writeSet(rest); err != nil {
			return nil, false, err
		}
	}
	if !moved {
		return nil, false, nil
	}
	out[ours].FieldsV1, err = writeSet(mine)
	return out, true, err
}

// moveFields adds the fields of a managedFields entry for which move is true to a set, and returns
// the rest. moved is true if there were any.
func moveFields(from *metav1.FieldsV1, to *fieldpath.Set,
	move func(fieldpath.Path) bool) (rest *fieldpath.Set, moved bool, err error) {
	fields, err := readSet(from)
	if err != nil {
		return nil, false, err
	}
	rest = fieldpath.NewSet()
	fields.Iterate(func(p fieldpath.Path) {
		if move(p) {
			to.Insert(p.Copy())
			moved = true
		} else {
			rest.Insert(p.Copy())
		}
	})
	return rest, moved, nil
}

// isListItem is true for the path of an item of one of the lists, and for paths below it.
func isListItem(p fieldpath.Path, lists [][]string) bool {
	return slices.ContainsFunc(lists, func(list []string) bool {
		if len(p) <= len(list) {
			return false
		}
		for i, name := range list {
			if p[i].FieldName == nil || *p[i].FieldName != name {
				return false
			}
		}
		return true
	})
}

func readSet(f *metav1.FieldsV1) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if f == nil {
		return set, nil
	}
	return set, set.FromJSON(bytes.NewReader(f.GetRawBytes()))
}

func writeSet(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	return metav1.NewFieldsV1(string(raw)), err
}
