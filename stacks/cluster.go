package stacks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// ClusterVariable returns the variable cluster of a KsctlCluster.
func ClusterVariable(c *clusterv1.KsctlCluster) (map[string]any, error) {
	out := map[string]any{"name": c.Name, "namespace": c.Namespace, "labels": anyValues(c.Labels),
		"annotations": anyValues(c.Annotations)}
	if c.Status.KubernetesVersion != "" {
		out["kubernetesVersion"] = c.Status.KubernetesVersion
	}
	if c.Status.Facts != nil {
		facts, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Status.Facts)
		if err != nil {
			return nil, err
		}
		out["facts"] = facts
	}
	return out, nil
}

func anyValues(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}

// ClusterFacts are the facts of the KsctlCluster of an install that the expressions of its stack
// read.
type ClusterFacts struct {
	// Paths that the expressions read.
	Paths [][]string `json:"paths,omitempty"`
	// Values of the variable cluster, at these paths.
	Values map[string]any `json:"values,omitempty"`
}

// UnmarshalJSON decodes integers as int64 and not as float64.
func (f *ClusterFacts) UnmarshalJSON(data []byte) error {
	type plain ClusterFacts
	return utiljson.Unmarshal(data, (*plain)(f))
}

// SelectFacts returns the facts of a cluster at some paths.
func SelectFacts(cluster map[string]any, paths [][]string) *ClusterFacts {
	out := &ClusterFacts{Paths: paths}
	for _, path := range paths {
		if selected, ok := selectPath(cluster, out.Values, path); ok {
			out.Values, _ = selected.(map[string]any)
		}
	}
	return out
}

// RenderWithFacts renders with the facts of a cluster that the stack reads; nil without a cluster.
// Their paths are known after a render: paths has those of the last one, and then those of this
// one. A new revision of the stack may read others.
func RenderWithFacts(ctx context.Context, req Request, cluster map[string]any, paths *[][]string,
	render func(context.Context, Request) (Result, error)) (Result, error) {
	if cluster == nil {
		req.Cluster = nil
		return render(ctx, req)
	}
	req.Cluster = SelectFacts(cluster, *paths)
	result, err := render(ctx, req)
	if missing, ok := errors.AsType[*MissingFactsError](err); ok {
		*paths = missing.Paths
		req.Cluster = SelectFacts(cluster, *paths)
		return render(ctx, req)
	}
	return result, err
}

// selectPath returns into with the value at a path of from.
func selectPath(from, into any, path []string) (any, bool) {
	if len(path) == 0 {
		return from, true
	}
	m, _ := from.(map[string]any)
	below, ok := m[path[0]]
	if !ok {
		return into, false
	}
	out, _ := into.(map[string]any)
	selected, ok := selectPath(below, out[path[0]], path[1:])
	if _, isMap := below.(map[string]any); !ok && isMap {
		selected, ok = out[path[0]], true // has() of the object is true
		if selected == nil {
			selected = map[string]any{}
		}
	}
	if !ok {
		return into, false
	}
	if out = maps.Clone(out); out == nil {
		out = map[string]any{}
	}
	out[path[0]] = selected
	return out, true
}

// MissingFactsError is the error of a render whose ClusterFacts have other paths than the stack
// reads. The caller renders again with the facts at Paths.
type MissingFactsError struct {
	Stack string     `json:"stack,omitempty"`
	Paths [][]string `json:"paths"`
}

// Error implements error.
func (e *MissingFactsError) Error() string {
	return fmt.Sprintf("stack %q: it reads other facts of the cluster than those that were given", e.Stack)
}

// checkFacts returns a *MissingFactsError if the facts of a request are not those that the stack
// reads.
func checkFacts(def *Definition, req *Request) error {
	if req.Cluster == nil {
		return nil
	}
	paths := def.clusterPaths()
	if slices.EqualFunc(paths, req.Cluster.Paths, slices.Equal) {
		return nil
	}
	return &MissingFactsError{Stack: req.Stack, Paths: paths}
}

// clusterPaths returns the paths of the variable cluster that the expressions of the stack read,
// sorted, without those below another one.
func (d *Definition) clusterPaths() (out [][]string) {
	var all [][]string
	for _, x := range d.expressions {
		if x != nil {
			all = append(all, x.ClusterPaths()...)
		}
	}
	slices.SortFunc(all, slices.Compare)
	for _, path := range all {
		if n := len(out); n > 0 && len(out[n-1]) <= len(path) && slices.Equal(out[n-1], path[:len(out[n-1])]) {
			continue
		}
		out = append(out, path)
	}
	return out
}

// clusterValues returns the variable cluster.
func (f *ClusterFacts) clusterValues() map[string]any {
	if f == nil {
		return nil
	}
	return f.Values
}
