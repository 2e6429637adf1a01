package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/stacks"
)

// objects are the objects of an install on the cluster, by their inventory id.
type objects map[string]*unstructured.Unstructured

// snapshot reads every object of the install.
func (d *demo) snapshot(ctx context.Context) (objects, error) {
	in, err := d.getInstall(ctx)
	if err != nil {
		return nil, err
	}
	out := objects{}
	for _, e := range inventory(in) {
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: e.Version, Kind: ref.Kind})
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		out[e.ID] = u
	}
	return out, nil
}

// difference is the change of one object.
type difference struct {
	before, after *unstructured.Unstructured
	fields        []fieldChange
}

// fieldChange is the change of one field.
type fieldChange struct{ path, change string }

// name returns the kind, namespace and name of the object.
func (f *difference) name() string {
	u := f.after
	if u == nil {
		u = f.before
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// versions returns the change of the object's resourceVersion and generation.
func (f *difference) versions() string {
	switch {
	case f.before == nil:
		return "created, resourceVersion " + f.after.GetResourceVersion()
	case f.after == nil:
		return "deleted, resourceVersion was " + f.before.GetResourceVersion()
	}
	return fmt.Sprintf("resourceVersion %s → %s, generation %d → %d", f.before.GetResourceVersion(),
		f.after.GetResourceVersion(), f.before.GetGeneration(), f.after.GetGeneration())
}

// compare returns the changed objects, the number of objects with a changed status only (written by
// Kubernetes' controllers), and the number of objects with the same resourceVersion.
func (before objects) compare(after objects) (changed []difference, statusOnly, same int) {
	ids := maps.Clone(before)
	maps.Copy(ids, after)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		f := difference{before: before[id], after: after[id]}
		switch {
		case f.before == nil || f.after == nil:
			changed = append(changed, f)
			continue
		case f.before.GetResourceVersion() == f.after.GetResourceVersion():
			same++
			continue
		}
		f.fields = fieldsOf(f.before).compare(fieldsOf(f.after))
		if len(f.fields) == 0 {
			statusOnly++
			continue
		}
		changed = append(changed, f)
	}
	return changed, statusOnly, same
}

// fields are the leaves of an object, by path.
type fields map[string]string

// fieldsOf returns the fields of an object, without those that the API server and Kubernetes'
// controllers write. A recreated object has the same fields.
func fieldsOf(u *unstructured.Unstructured) fields {
	u = u.DeepCopy()
	for _, path := range [][]string{{"status"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"},
		{"metadata", "generation"},
		{"metadata", "uid"}, {"metadata", "creationTimestamp"},
		{"metadata", "annotations", "deployment.kubernetes.io/revision"}} {
		unstructured.RemoveNestedField(u.Object, path...)
	}
	out := fields{}
	out.add("", u.Object)
	return out
}

func (f fields) add(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			f.add(strings.TrimPrefix(path+"."+key, "."), item)
		}
	case []any:
		for i, item := range v {
			key := fmt.Sprint(i)
			if m, ok := item.(map[string]any); ok {
				if name, ok := m["name"].(string); ok {
					key = name
				}
			}
			f.add(path+"["+key+"]", item)
		}
	default:
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		f[path] = string(text)
	}
}

func (f fields) compare(after fields) []fieldChange {
	paths := maps.Clone(f)
	maps.Copy(paths, after)
	var out []fieldChange
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		old, had := f[path]
		now, has := after[path]
		switch {
		case !had:
			out = append(out, fieldChange{path, "added " + now})
		case !has:
			out = append(out, fieldChange{path, "removed " + old})
		case old != now:
			out = append(out, fieldChange{path, old + " → " + now})
		}
	}
	return out
}

// fields prints changed fields.
func (s *screen) fields(changes []fieldChange) {
	for _, c := range changes {
		s.line("      %s", c.path)
		s.line("        %s", c.change)
	}
}
