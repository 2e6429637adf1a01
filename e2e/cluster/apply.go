package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"
)

// FieldManager is the field manager of [Cluster.Apply].
const FieldManager = "e2e"

// Apply applies the manifests at path with server-side apply, and forces conflicts with other field
// managers. The path is a file, a folder with a kustomization (which is built), or a folder of
// .yaml, .yml and .json files (without its subfolders). Apply applies Namespaces and CRDs first and
// waits until the CRDs are served.
func (c *Cluster) Apply(ctx context.Context, path string) error {
	data, err := manifests(path)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	if err := c.ApplyYAML(ctx, data); err != nil {
		return fmt.Errorf("applying %s: %w", path, err)
	}
	return nil
}

// ApplyYAML applies a stream of YAML or JSON documents as [Cluster.Apply] does. An object of a
// namespaced kind without a namespace goes to "default".
func (c *Cluster) ApplyYAML(ctx context.Context, data []byte) error {
	objects, err := decode(data)
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, object := range objects {
		if err := c.applyObject(ctx, object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

func (c *Cluster) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	namespaced, err := c.client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	err = c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil || rank(object) != rankCRD {
		return err
	}
	return c.awaitCRD(ctx, object.GetName())
}

// awaitCRD waits until objects of a CRD can be created.
func (c *Cluster) awaitCRD(ctx context.Context, name string) error {
	return Await(ctx, "CRD "+name+" to be established", startTimeout, func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return c.awaitDiscovery(crd)
			}
		}
		return fmt.Errorf("CRD %s is not established", name)
	})
}

// awaitDiscovery returns an error until the REST mapper finds the CRD's kind: discovery lags behind
// the condition Established.
func (c *Cluster) awaitDiscovery(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(crd.Spec.Group + "/" + version.Name)
		u.SetKind(crd.Spec.Names.Kind)
		if _, err := c.client.IsObjectNamespaced(u); err != nil {
			return err
		}
	}
	return nil
}

const (
	rankNamespace = iota
	rankCRD
	rankOther
)

func rank(object *unstructured.Unstructured) int {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		return rankNamespace
	case schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}:
		return rankCRD
	}
	return rankOther
}

// manifests returns the manifests at path as one stream of documents.
func manifests(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return os.ReadFile(path)
	}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return kustomize(path)
		}
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		all.WriteString("\n---\n")
		all.Write(data)
	}
	if all.Len() == 0 {
		return nil, fmt.Errorf("folder %s contains no manifests", path)
	}
	return all.Bytes(), nil
}

func kustomize(path string) ([]byte, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, fmt.Errorf("building the kustomization %s: %w", path, err)
	}
	return built.AsYaml()
}

// decode splits a stream into objects. It expands lists into their items and skips empty documents.
func decode(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", n, err)
		}
		u := &unstructured.Unstructured{}
		if err := sigsyaml.Unmarshal(document, &u.Object); err != nil {
			return nil, fmt.Errorf("parsing document %d: %w", n, err)
		}
		switch {
		case len(u.Object) == 0:
		case u.IsList():
			err := u.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("expanding the list in document %d: %w", n, err)
			}
		default:
			objects = append(objects, u)
		}
	}
}
