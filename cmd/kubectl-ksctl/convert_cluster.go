package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/stacks/convert"
)

// convertedKinds are the kinds that convert reads from a cluster.
var convertedKinds = []schema.GroupVersionKind{
	{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
	{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
	{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"},
	{Group: "argoproj.io", Version: "v1alpha1", Kind: "ApplicationSet"},
}

// sourceKinds are the kinds of sources that these refer to, in any namespace.
var sourceKinds = []schema.GroupVersionKind{
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmRepository"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmChart"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"},
}

func (o *convertOptions) readCluster(ctx context.Context) ([]convert.Object, error) {
	c, namespace, err := o.cluster.client()
	if err != nil {
		return nil, err
	}
	if o.allNamespaces {
		namespace = ""
	}
	return readObjects(ctx, c, namespace)
}

// readObjects reads the objects of a namespace, or of all, that are converted, and those that they
// refer to. It skips kinds that the cluster does not serve.
func readObjects(ctx context.Context, c client.Client, namespace string) (out []convert.Object, err error) {
	for _, kind := range convertedKinds {
		items, err := listKind(ctx, c, kind, namespace)
		if err != nil {
			return nil, err
		}
		for i := range items {
			out = append(out, convert.Object{Value: items[i].Object})
			values, err := readValues(ctx, c, &items[i])
			if err != nil {
				return nil, err
			}
			out = append(out, values...)
		}
	}
	for _, kind := range sourceKinds {
		items, err := listKind(ctx, c, kind, "")
		if err != nil {
			return nil, err
		}
		for i := range items {
			out = append(out, convert.Object{Value: items[i].Object})
		}
	}
	return out, nil
}

func listKind(ctx context.Context, c client.Client, kind schema.GroupVersionKind,
	namespace string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := c.List(ctx, list, client.InNamespace(namespace))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
	}
	for i := range list.Items {
		list.Items[i].SetManagedFields(nil)
	}
	return list.Items, nil
}

// readValues reads the ConfigMaps and Secrets with the values of a HelmRelease or the variables of
// a Kustomization. What does not exist is left out.
func readValues(ctx context.Context, c client.Client, o *unstructured.Unstructured) (out []convert.Object, err error) {
	values, _, err := unstructured.NestedSlice(o.Object, "spec", "valuesFrom")
	variables, _, variablesErr := unstructured.NestedSlice(o.Object, "spec", "postBuild", "substituteFrom")
	if err := errors.Join(err, variablesErr); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	for _, ref := range append(values, variables...) {
		fields, _ := ref.(map[string]any)
		kind, _ := fields["kind"].(string)
		name, _ := fields["name"].(string)
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
		err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the values of %s %s/%s: "+
				"%w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
		out = append(out, convert.Object{Value: found.Object})
	}
	return out, nil
}
