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
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/readyexpr"
)

// clusterValues returns the values that depend on the target cluster of an install, as YAML.
func (s *Steps) clusterValues(ctx context.Context, in *appsv1.KsctlInstall,
	ref *appsv1.ValuesReference) ([]byte, error) {
	clusterRef := in.Spec.ClusterRef
	if clusterRef == nil {
		return nil, reconcile.NewTerminalError(appsv1.InvalidClusterValuesReason,
			"valuesFrom Cluster for component %q: set: spec.clusterRef is not set", ref.Component)
	}
	var c clusterv1.KsctlCluster
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: cmp.Or(clusterRef.Namespace, in.Namespace),
		Name: clusterRef.Name}, &c, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return evaluateClusterValues(&c, ref)
}

// evaluateClusterValues is the pure part of clusterValues.
func evaluateClusterValues(c *clusterv1.KsctlCluster, ref *appsv1.ValuesReference) ([]byte, error) {
	// Only the fields whose changes enqueue the installs that use them, see clusterChanged.
	visible := clusterv1.KsctlCluster{Spec: c.Spec,
		Status: clusterv1.KsctlClusterStatus{Facts: c.Status.Facts, KubernetesVersion: c.Status.KubernetesVersion}}
	visible.Name, visible.Namespace, visible.Labels, visible.Annotations = c.Name, c.Namespace, c.Labels, c.Annotations
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&visible)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, set := range ref.Set {
		v, err := readyexpr.Value(set.Expr, object)
		if err == nil {
			err = setPath(out, splitPath(set.Path), v)
		}
		if err != nil {
			return nil, reconcile.NewTerminalError(appsv1.InvalidClusterValuesReason,
				"valuesFrom Cluster for component %q: %s: %w", ref.Component, set.Path, err)
		}
	}
	return yaml.Marshal(out)
}

// splitPath splits a path at its dots. A backslash escapes the next character.
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

// setPath sets the value at a path of nested maps. It returns an error if the field, one of its
// parents or one of its children is already set.
func setPath(tree map[string]any, path []string, v any) error {
	last := len(path) - 1
	for i, key := range path {
		field, exists := tree[key]
		next, nested := field.(map[string]any)
		switch {
		case key == "":
			return fmt.Errorf("the path has an empty segment")
		case exists && i == last:
			return fmt.Errorf("the field, or a nested field, is already set by another path")
		case exists && !nested:
			return fmt.Errorf("the field %s is already set by another path", strings.Join(path[:i+1], "."))
		case i == last:
			tree[key] = v
		case !exists:
			next = map[string]any{}
			tree[key] = next
		}
		tree = next
	}
	return nil
}
