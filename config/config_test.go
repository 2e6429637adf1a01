// Package config_test checks the shipped manifests.
package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/ksctl/gitops/internal/manager"
)

// build builds a kustomization in this folder. The kustomization may load other kustomizations, but
// no files outside its root.
func build(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		content, err := r.Map()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, &unstructured.Unstructured{Object: content})
	}
	return out
}

// into converts an object of a kustomization to its Go type.
func into[T any](t *testing.T, u *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return out
}

func TestEveryKustomizationBuilds(t *testing.T) {
	found, err := filepath.Glob("*/kustomization.yaml")
	if err != nil || len(found) == 0 {
		t.Fatalf("kustomizations: %v, %v", found, err)
	}
	for _, file := range found {
		path := filepath.Dir(file)
		if isComponent(t, file) {
			path = withComponent(t, path)
		}
		if objects := build(t, path); len(objects) == 0 {
			t.Errorf("%s has no objects", file)
		}
	}
}

func TestEveryFileIsPartOfItsKustomization(t *testing.T) {
	files, err := filepath.Glob("*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasPrefix(file, "chart/") })
	bases, err := filepath.Glob("crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, bases...) {
		folder, name, _ := strings.Cut(filepath.ToSlash(file), "/")
		kustomization, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if name != "kustomization.yaml" && !strings.Contains(string(kustomization), "- "+name+"\n") {
			t.Errorf("%s is not listed in %s/kustomization.yaml", file, folder)
		}
	}
}

// crds returns the shipped CRDs.
func crds(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, u := range build(t, "crd") {
		out = append(out, into[apiextensionsv1.CustomResourceDefinition](t, u))
	}
	return out
}

func TestFluxSubstitutesNothingInCRDs(t *testing.T) {
	for _, crd := range crds(t) {
		if crd.Annotations["kustomize.toolkit.fluxcd.io/substitute"] != "disabled" {
			t.Errorf("%s lacks the annotation", crd.Name)
		}
	}
}

// "kubectl explain" shows a description for every field.
func TestEveryFieldHasDescription(t *testing.T) {
	for _, crd := range crds(t) {
		for _, v := range crd.Spec.Versions {
			for _, path := range fieldsWithoutDescription(v.Schema.OpenAPIV3Schema, crd.Spec.Names.Kind) {
				t.Errorf("%s has no description", path)
			}
		}
	}
}

// fieldsWithoutDescription returns the paths of the fields without a description.
func fieldsWithoutDescription(schema *apiextensionsv1.JSONSchemaProps, path string) []string {
	var out []string
	for name, property := range schema.Properties {
		at := path + "." + name
		if property.Description == "" && !isObjectMeta(path, name) {
			out = append(out, at)
		}
		out = append(out, fieldsWithoutDescription(&property, at)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		out = append(out, fieldsWithoutDescription(schema.Items.Schema, path+"[]")...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		out = append(out, fieldsWithoutDescription(schema.AdditionalProperties.Schema, path+"{}")...)
	}
	slices.Sort(out)
	return out
}

// isObjectMeta reports whether Kubernetes itself describes a field, which every object has.
func isObjectMeta(path, name string) bool {
	return name == "metadata" && !strings.Contains(path, ".")
}

// Git owns the spec: a default that the API server sets would be a permanent difference.
func TestNoSpecHasDefaults(t *testing.T) {
	for _, crd := range crds(t) {
		for _, v := range crd.Spec.Versions {
			spec, ok := v.Schema.OpenAPIV3Schema.Properties["spec"]
			if !ok {
				continue
			}
			for _, path := range fieldsWithDefault(&spec, crd.Spec.Names.Kind+".spec") {
				t.Errorf("%s has a default", path)
			}
		}
	}
}

// fieldsWithDefault returns the paths of the fields with a default.
func fieldsWithDefault(schema *apiextensionsv1.JSONSchemaProps, path string) []string {
	var out []string
	if schema.Default != nil {
		out = append(out, path)
	}
	for name, property := range schema.Properties {
		out = append(out, fieldsWithDefault(&property, path+"."+name)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		out = append(out, fieldsWithDefault(schema.Items.Schema, path+"[]")...)
	}
	return out
}

// deployment returns the controller's Deployment.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	for _, u := range build(t, "default") {
		if u.GetKind() == "Deployment" {
			return into[appsv1.Deployment](t, u)
		}
	}
	t.Fatal("no Deployment")
	return nil
}

func TestDeploymentUsesFlagsThatExist(t *testing.T) {
	var o manager.Options
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.BindFlags(flags)
	container := deployment(t).Spec.Template.Spec.Containers[0]
	if err := flags.Parse(container.Args); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if o.DefaultServiceAccount == "" {
		t.Error("--default-service-account is not set: installs would run with the controller's permissions")
	}
	for name, addr := range map[string]string{"metrics": o.MetricsAddr, "health": o.HealthAddr,
		"artifacts": o.StorageAddr} {
		found := slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool {
			return p.Name == name && fmt.Sprintf(":%d", p.ContainerPort) == addr
		})
		if !found {
			t.Errorf("no port %q for address %s", name, addr)
		}
	}
	mounted := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == o.StoragePath
	})
	if !mounted {
		t.Errorf("no volume is mounted at %s", o.StoragePath)
	}
}
