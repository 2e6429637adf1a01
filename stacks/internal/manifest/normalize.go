package manifest

import (
	"fmt"

	"github.com/ksctl/gitops/stacks/problem"
)

// argoCDTracking are the tracking marks of Argo CD. If an object had a copy of them, Argo CD would
// treat it as part of its Application, although the object belongs to the Application's child: the
// install.
var argoCDTracking = []string{"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"}

// Normalize removes empty fields and the tracking marks of Argo CD.
func Normalize(o *Object) {
	if status, there := o.Value["status"]; there && isEmpty(status) {
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

func isEmpty(v any) bool {
	if v == nil {
		return true
	}
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
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

// Scope is the scope of a kind.
type Scope int

// Scopes.
const (
	ScopeUnknown Scope = iota
	ScopeCluster
	ScopeNamespace
)

// Scopes has the scopes of kinds that CRDs define, by <group>/<kind>. The scopes of built-in kinds
// are in clusterScoped.
type Scopes map[string]Scope

// ScopesOf returns the scopes that the CRDs among objects define.
func ScopesOf(objects []*Object) Scopes {
	s := Scopes{}
	for _, o := range objects {
		if o.Group != "apiextensions.k8s.io" || o.Kind != "CustomResourceDefinition" {
			continue
		}
		spec, _ := o.Value["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		group, _ := spec["group"].(string)
		kind, _ := names["kind"].(string)
		switch spec["scope"] {
		case "Cluster":
			s[group+"/"+kind] = ScopeCluster
		case "Namespaced":
			s[group+"/"+kind] = ScopeNamespace
		}
	}
	return s
}

// Of returns the scope of the kind of o.
func (s Scopes) Of(o *Object) Scope {
	if kinds, ok := clusterScoped[o.Group]; ok {
		if kinds[o.Kind] {
			return ScopeCluster
		}
		return ScopeNamespace
	}
	return s[o.Group+"/"+o.Kind]
}

// SetNamespace sets the namespace of o if o has none, and removes the namespace of a cluster-scoped
// object.
func (s Scopes) SetNamespace(o *Object, namespace string) {
	meta, _ := o.Value["metadata"].(map[string]any)
	if s.Of(o) == ScopeCluster {
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

// ComponentObject is an object with the name of its component.
type ComponentObject struct {
	*Object
	Component string
}

// FindDuplicates reports objects that are in all more than once.
func FindDuplicates(all []ComponentObject) problem.Errors {
	first := make(map[string]ComponentObject, len(all))
	var errs problem.Errors
	for _, o := range all {
		before, twice := first[o.ID()]
		if !twice {
			first[o.ID()] = o
			continue
		}
		where := before.Location()
		if before.Component != o.Component {
			where = fmt.Sprintf("component %q, %s", before.Component, where)
		}
		errs = append(errs, &problem.Error{
			File: o.File, Line: o.Line, Component: o.Component,
			Message: fmt.Sprintf("%s is rendered twice; the first is in %s", o.Object, where),
		})
	}
	return errs
}
