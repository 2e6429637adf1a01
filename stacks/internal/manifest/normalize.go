package manifest

import (
	"fmt"
	"reflect"

	"github.com/ksctl/gitops/stacks/problem"
)

// argoCDTracking are the tracking marks of Argo CD. If an object had a copy of them, Argo CD would
// treat it as part of its Application, although the object belongs to the Application's child: the
// install.
var argoCDTracking = []string{"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"}

// Normalize removes empty fields, fields that others fill, and the tracking marks of Argo CD.
func Normalize(o *Object) {
	dropFilled(o)
	status := o.Value["status"]
	if fields, ok := status.(map[string]any); status == nil || ok && len(fields) == 0 {
		delete(o.Value, "status")
	}
	dropNullTimestamps(o.Value)
	meta, _ := o.Value["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		marks, ok := meta[field].(map[string]any)
		if !ok {
			delete(meta, field)
			continue
		}
		for _, mark := range argoCDTracking {
			delete(marks, mark)
		}
		if len(marks) == 0 {
			delete(meta, field)
		}
	}
}

// dropNullTimestamps removes the creationTimestamp: null that generators leave in metadata,
// including the metadata of pod templates.
func dropNullTimestamps(v any) {
	switch v := v.(type) {
	case map[string]any:
		if meta, ok := v["metadata"].(map[string]any); ok {
			if stamp, there := meta["creationTimestamp"]; there && stamp == nil {
				delete(meta, "creationTimestamp")
			}
		}
		for _, item := range v {
			dropNullTimestamps(item)
		}
	case []any:
		for _, item := range v {
			dropNullTimestamps(item)
		}
	}
}

// ClusterKinds are the cluster-scoped kinds that CRDs define, by <group>/<kind>. Those of the
// built-in groups are in clusterScoped.
type ClusterKinds map[string]bool

// ClusterKindsOf returns the cluster-scoped kinds that the CRDs among objects define.
func ClusterKindsOf(objects []*Object) ClusterKinds {
	out := ClusterKinds{}
	for _, o := range objects {
		if !isDefinition(o) {
			continue
		}
		spec, _ := o.Value["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		group, _ := spec["group"].(string)
		kind, _ := names["kind"].(string)
		if scope := spec["scope"]; scope == "Cluster" || scope == "Namespaced" { // the last CRD of a kind counts
			out[group+"/"+kind] = scope == "Cluster"
		}
	}
	return out
}

// SetNamespace sets the namespace of o if o has none, and removes the namespace of a cluster-scoped
// object.
func (k ClusterKinds) SetNamespace(o *Object, namespace string) {
	meta, _ := o.Value["metadata"].(map[string]any)
	kinds, builtin := clusterScoped[o.Group]
	if kinds[o.Kind] || !builtin && k[o.Group+"/"+o.Kind] {
		o.Namespace = ""
		delete(meta, "namespace")
		return
	}
	if o.Namespace != "" {
		return
	}
	o.Namespace = namespace
	o.NamespaceDefaulted = true
	meta["namespace"] = namespace
}

// DropRepeated removes objects that a chart renders several times: copies,
// CustomResourceDefinitions, of which the last one counts, and hooks that become an ordinary
// object. Helm applies each of them, with the same result. It leaves others, which FindDuplicates
// reports.
func DropRepeated(objects []*Object) (kept []*Object, warnings []string) {
	at := make(map[string]int, len(objects))
	for _, o := range objects {
		first, twice := at[o.ID()]
		switch {
		case !twice:
			at[o.ID()] = len(kept)
			kept = append(kept, o)
			continue
		case becomesOrdinary(kept[first], o):
			kept[first], o = stayingObject(o, kept[first]), kept[first]
		case becomesOrdinary(o, kept[first]):
			kept[first] = stayingObject(kept[first], o)
		case isNotApplied(kept[first]) || isNotApplied(o): // see FindDuplicates
			kept = append(kept, o)
			continue
		case isInactive(o): // it is of another event
			continue
		case isInactive(kept[first]):
			kept[first] = o
			continue
		case reflect.DeepEqual(kept[first].Value, o.Value):
		case isDefinition(o):
			kept[first], o = o, kept[first]
		default:
			kept = append(kept, o)
			continue
		}
		warnings = append(warnings,
			fmt.Sprintf("%s: %s is left out, because it is in %s, too", o.Location(), o, kept[first].Location()))
	}
	return kept, warnings
}

// becomesOrdinary reports whether a hook before the other objects has the name of one of them. If
// it does not run, the hook needs no step of its own: the object can be there from then on.
func becomesOrdinary(hook, o *Object) bool {
	return o.Hook == nil && hook.Hook != nil && !hook.Hook.Post && !hook.Hook.PreRemove && !hook.Hook.NotApplied &&
		!hook.Hook.Inactive && !Runs(o)
}

// Runs reports whether an object is a Job or a Pod.
func Runs(o *Object) bool {
	return o.Group == "batch" && o.Kind == "Job" || o.Group == "" && o.Kind == "Pod"
}

// stayingObject returns an object that is applied in the step of a hook.
func stayingObject(o, hook *Object) *Object {
	out := *o
	out.Hook = &Hook{Weight: hook.Hook.Weight, Stays: true}
	return &out
}

func isDefinition(o *Object) bool {
	return o.Group == "apiextensions.k8s.io" && o.Kind == "CustomResourceDefinition"
}

func isNotApplied(o *Object) bool { return o.Hook != nil && o.Hook.NotApplied }

func isInactive(o *Object) bool { return o.Hook != nil && o.Hook.Inactive }

// FindDuplicates reports objects that are in all more than once. A hook that is not applied with
// the others may have the name of one of them, and of a hook of another phase; tests and inactive
// hooks are not compared.
func FindDuplicates(all []*Object) problem.Errors {
	first := make(map[string]*Object, len(all))
	var errs problem.Errors
	for _, o := range all {
		for _, phase := range phasesOf(o) {
			before, twice := first[phase+o.ID()]
			if !twice {
				first[phase+o.ID()] = o
				continue
			}
			errs = append(errs, duplicateError(before, o))
		}
	}
	return errs
}

// phasesOf returns prefixes for the times at which an object exists.
func phasesOf(o *Object) (out []string) {
	switch {
	case isInactive(o):
		return nil
	case !isNotApplied(o):
		return []string{""}
	}
	if o.Hook.PreDelete {
		out = append(out, "before ")
	}
	if o.Hook.PostDelete {
		out = append(out, "after ")
	}
	return out
}

func duplicateError(before, o *Object) *problem.Error {
	where := "; the first is in " + before.Location()
	switch {
	case before.Component != o.Component:
		where = fmt.Sprintf("; the first is in component %q, %s", before.Component, before.Location())
	case before.Location() == o.Location():
		where = " from the same place: its file is listed twice, or its template repeats it"
	}
	return &problem.Error{File: o.File, Line: o.Line, Component: o.Component,
		Message: fmt.Sprintf("%s is rendered twice%s", o, where)}
}
