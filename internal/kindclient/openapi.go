package kindclient

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/ksctl/gitops/stacks"
)

const schemaPrefix = "#/components/schemas/"

// OpenAPI returns an OpenAPI document with the schemas of a kind and of its lists, in each version,
// under the names that an API server gives them.
func OpenAPI(k *stacks.KindTemplate) (map[string]any, error) {
	crd, err := k.Definition()
	if err != nil {
		return nil, err
	}
	schemas := map[string]any{}
	for _, v := range crd.Spec.Versions {
		root, err := openAPISchema(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		root["properties"].(map[string]any)["metadata"] = reference(metav1.ObjectMeta{}.OpenAPIModelName())
		root["description"] = crd.Spec.Names.Kind + " is an install of the stack that serves the kind."
		name := modelName(crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
		schemas[name] = withKind(root, crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
		schemas[name+"List"] = withKind(map[string]any{"type": "object", "required": []any{"items"},
			"description": crd.Spec.Names.ListKind + " is a list of objects.",
			"properties": map[string]any{
				"apiVersion": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string"},
				"metadata": reference(metav1.ListMeta{}.OpenAPIModelName()),
				"items":    map[string]any{"type": "array", "items": reference(name)}}},
			crd.Spec.Group, v.Name, crd.Spec.Names.ListKind)
	}
	addMetadata(schemas)
	return map[string]any{"openapi": "3.0.0", "paths": map[string]any{},
		"info":       map[string]any{"title": crd.Name, "version": k.StackVersion},
		"components": map[string]any{"schemas": schemas}}, nil
}

// openAPISchema returns the OpenAPI schema that an API server publishes for a schema of a
// CustomResourceDefinition.
func openAPISchema(s *apiextensionsv1.JSONSchemaProps) (out map[string]any, err error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, &internal,
		nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(structural.Unfold().ToKubeOpenAPI())
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

func reference(name string) map[string]any { return map[string]any{"$ref": schemaPrefix + name} }

// modelName returns the name of the schema of a kind.
func modelName(group, version, kind string) string {
	labels := strings.Split(group, ".")
	slices.Reverse(labels)
	return strings.Join(append(labels, version, kind), ".")
}

// withKind adds the extension with the group, version and kind to a schema.
func withKind(schema map[string]any, group, version, kind string) map[string]any {
	schema["x-kubernetes-group-version-kind"] = []any{
		map[string]any{"group": group, "version": version, "kind": kind}}
	return schema
}

// addMetadata adds the schemas of metadata, and those to which they refer.
func addMetadata(schemas map[string]any) {
	definitions := generatedopenapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef(schemaPrefix + name)
	})
	var add func(name string)
	add = func(name string) {
		if schemas[name] != nil {
			return
		}
		d := definitions[name]
		schemas[name] = d.Schema
		for _, dependency := range d.Dependencies {
			add(dependency)
		}
	}
	add(metav1.ObjectMeta{}.OpenAPIModelName())
	add(metav1.ListMeta{}.OpenAPIModelName())
}
