package manifest

import (
	"fmt"

	"github.com/ksctl/gitops/stacks/problem"
)

// foreignMarks belong to Argo CD: copied to an object, they would make it think
// that it owns what only its Application's child owns.
var foreignMarks = []string{"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"}

// Normalise drops what says nothing and marks of others.
func Normalise(o *Object) {
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
		for _, mark := range foreignMarks {
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

// dropNullTimestamps drops the creationTimestamp: null that generators leave in
// metadata, also in that of templates.
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

// Scope of a kind.
type Scope int

// Scopes.
const (
	ScopeUnknown Scope = iota
	ScopeCluster
	ScopeNamespace
)

// Scopes knows the scope of built-in kinds and of those that CRDs among the objects define.
type Scopes map[string]Scope

// ScopesOf learns from the CRDs among objects.
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

// Of is the scope of the kind of o.
func (s Scopes) Of(o *Object) Scope {
	if kinds, ok := clusterScoped[o.Group]; ok {
		if kinds[o.Kind] {
			return ScopeCluster
		}
		return ScopeNamespace
	}
	return s[o.Group+"/"+o.Kind]
}

// Place gives o a namespace when it needs one, and takes it away from kinds that have none.
func (s Scopes) Place(o *Object, namespace string) {
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

// Placed is an object and the component it belongs to.
type Placed struct {
	*Object
	Component string
}

// Duplicates are objects that are there twice.
func Duplicates(all []Placed) problem.Errors {
	first := make(map[string]Placed, len(all))
	var errs problem.Errors
	for _, o := range all {
		before, twice := first[o.ID()]
		if !twice {
			first[o.ID()] = o
			continue
		}
		where := before.Place()
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
