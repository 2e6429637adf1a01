package stacks

import (
	"fmt"
	"maps"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

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
