package install

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// ClusterValueError says that a value of a cluster can't be had.
type ClusterValueError struct {
	Component, Path string
	Err             error
}

func (e *ClusterValueError) Error() string {
	return fmt.Sprintf("valuesFrom Cluster for component %q: %s: %v", e.Component, e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *ClusterValueError) Unwrap() error { return e.Err }

// clusterValues are those that depend on the cluster that an install is for, as YAML.
func (s *Steps) clusterValues(ctx context.Context, in *appsv1.KsctlInstall, ref *appsv1.ValuesReference) ([]byte, error) {
	to := in.Spec.ClusterRef
	if to == nil {
		return nil, &ClusterValueError{Component: ref.Component, Path: "set", Err: fmt.Errorf("the install names no cluster with clusterRef")}
	}
	var c clusterv1.KsctlCluster
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: cmp.Or(to.Namespace, in.Namespace), Name: to.Name}, &c, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return evaluate(&c, ref)
}

// evaluate is the pure part of clusterValues.
func evaluate(c *clusterv1.KsctlCluster, ref *appsv1.ValuesReference) ([]byte, error) {
	// No more than what wakes those who use it, see otherCluster.
	seen := clusterv1.KsctlCluster{Spec: c.Spec, Status: clusterv1.KsctlClusterStatus{Facts: c.Status.Facts, KubernetesVersion: c.Status.KubernetesVersion}}
	seen.Name, seen.Namespace, seen.Labels, seen.Annotations = c.Name, c.Namespace, c.Labels, c.Annotations
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&seen)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, set := range ref.Set {
		v, err := readyexpr.Value(set.Expr, object)
		if err == nil {
			err = put(out, splitPath(set.Path), v)
		}
		if err != nil {
			return nil, &ClusterValueError{Component: ref.Component, Path: set.Path, Err: err}
		}
	}
	return yaml.Marshal(out)
}

// splitPath splits at dots that no backslash stands before.
func splitPath(path string) []string {
	var out []string
	var part strings.Builder
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '\\' && i+1 < len(path):
			i++
			part.WriteByte(path[i])
		case path[i] == '.':
			out = append(out, part.String())
			part.Reset()
		default:
			part.WriteByte(path[i])
		}
	}
	return append(out, part.String())
}

// put sets a value in a tree.
func put(tree map[string]any, path []string, v any) error {
	for i, key := range path {
		if key == "" {
			return fmt.Errorf("a part of the path is empty")
		}
		if i == len(path)-1 {
			if _, taken := tree[key]; taken {
				return fmt.Errorf("another path has set it, or something below it")
			}
			tree[key] = v
			return nil
		}
		next, ok := tree[key].(map[string]any)
		if _, taken := tree[key]; taken && !ok {
			return fmt.Errorf("another path has set %s", strings.Join(path[:i+1], "."))
		}
		if !ok {
			next = map[string]any{}
			tree[key] = next
		}
		tree = next
	}
	return nil
}
