package stacks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/config/crd"
	"github.com/ksctl/gitops/stacks/problem"
)

// PluralName returns the plural name of the kind.
func (s *Serves) PluralName() string { return cmp.Or(s.Plural, strings.ToLower(s.Kind)+"s") }

// DefinitionName returns the name of the CustomResourceDefinition.
func (s *Serves) DefinitionName() string { return s.PluralName() + "." + s.Group }

// installSchemas returns the schemas of the spec and of the status of a KsctlInstall.
func installSchemas() (spec, status map[string]any, err error) {
	var d struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPI struct {
						Properties struct {
							Spec   map[string]any `json:"spec"`
							Status map[string]any `json:"status"`
						} `json:"properties"`
					} `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(crd.KsctlInstalls, &d); err != nil {
		return nil, nil, err
	}
	p := d.Spec.Versions[0].Schema.OpenAPI.Properties
	return p.Spec, p.Status, nil
}

// servedStatus returns the schema of the status: that of an install, and the fields of the stack.
func (s *Serves) servedStatus() (map[string]any, error) {
	_, status, err := installSchemas()
	if err != nil {
		return nil, err
	}
	own := propertiesOf(status)
	for _, unused := range []string{"clusters", "removals", "lastHandledTest"} {
		delete(own, unused)
	}
	for name, property := range propertiesOf(s.StatusSchema) {
		if _, taken := own[name]; taken {
			return nil, problem.Newf("has %q, which the status of every install has", name)
		}
		own[name] = property
	}
	return status, nil
}

func propertiesOf(schema map[string]any) map[string]any {
	p, _ := schema["properties"].(map[string]any)
	return p
}

// Definition returns the CustomResourceDefinition of the kind.
func (s *Serves) Definition() (*apiextensionsv1.CustomResourceDefinition, error) {
	status, err := s.servedStatus()
	if err != nil {
		return nil, err
	}
	spec := s.Schema
	if spec == nil {
		spec = map[string]any{"type": "object"}
	}
	root, err := schemaProps(map[string]any{"type": "object", "properties": map[string]any{
		"apiVersion": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string"},
		"metadata": map[string]any{"type": "object"}, "spec": spec, "status": status}})
	if err != nil {
		return nil, err
	}
	for _, v := range s.Validations {
		root.XValidations = append(root.XValidations, apiextensionsv1.ValidationRule{Rule: v.Rule, Message: v.Message})
	}
	d := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: s.DefinitionName()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: s.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: s.PluralName(),
				Singular: strings.ToLower(s.Kind), Kind: s.Kind, ListKind: s.Kind + "List", ShortNames: s.ShortNames,
				Categories: s.Categories}}}
	for i, v := range s.Versions {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v.Name, Served: true, Storage: i == 0, Deprecated: v.Deprecated,
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: root},
			Subresources: s.subresources(), AdditionalPrinterColumns: s.columns()})
	}
	return d, checkStructural(root)
}

func (s *Serves) subresources() *apiextensionsv1.CustomResourceSubresources {
	out := &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	if sc := s.Scale; sc != nil {
		out.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: sc.SpecReplicas,
			StatusReplicasPath: sc.StatusReplicas}
		if sc.LabelSelector != "" {
			out.Scale.LabelSelectorPath = &sc.LabelSelector
		}
	}
	return out
}

// columns returns the printed columns: those of a KsctlInstall, and those of the stack after Age.
func (s *Serves) columns() []apiextensionsv1.CustomResourceColumnDefinition {
	ready := func(field string) string { return `.status.conditions[?(@.type=="Ready")].` + field }
	out := []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	for _, c := range s.Columns {
		out = append(out, apiextensionsv1.CustomResourceColumnDefinition{Name: c.Name, Type: c.Type, JSONPath: c.Path,
			Description: c.Description, Priority: c.Priority})
	}
	return append(out,
		apiextensionsv1.CustomResourceColumnDefinition{Name: "Ready", Type: "string", JSONPath: ready("status")},
		apiextensionsv1.CustomResourceColumnDefinition{Name: "Status", Type: "string", JSONPath: ready("message")})
}

// schemaProps decodes a schema, and returns an error for a keyword that a CustomResourceDefinition
// lacks.
func schemaProps(schema map[string]any) (*apiextensionsv1.JSONSchemaProps, error) {
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var out apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict(raw, &out); err != nil {
		return nil, problem.Newf("is not a schema of a CustomResourceDefinition: %w", err)
	}
	return &out, nil
}

// checkStructural returns an error for a schema that is not structural, as the API server requires.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
func checkStructural(root *apiextensionsv1.JSONSchemaProps) error {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, &internal,
		nil); err != nil {
		return err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return problem.Newf("is not structural: %w", err)
	}
	var out []string
	for _, e := range structuralschema.ValidateStructural(nil, structural) {
		out = append(out, fmt.Sprintf("%s %s", strings.TrimPrefix(e.Field, "properties[spec]."), e.ErrorBody()))
	}
	if slices.Sort(out); len(out) > 0 {
		return problem.Newf("is not structural: %s", strings.Join(out, "; "))
	}
	return nil
}
