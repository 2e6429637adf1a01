package stacks

import (
	"cmp"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/problem"
)

// Error is one problem of a stack or of the choices of an install.
type Error = problem.Error

// Errors are all problems that were found at once.
type Errors = problem.Errors

// Choices are the settings of one install for a stack, in plain values.
type Choices struct {
	// StackVersion, if set, must equal the version that the stack declares.
	StackVersion string `json:"stackVersion,omitempty"`
	// Parameters are the stack-wide choices.
	Parameters map[string]any `json:"parameters,omitempty"`
	// ParametersFrom are stack-wide choices from ConfigMaps and Secrets. Later entries override
	// earlier ones, and Parameters override them all.
	ParametersFrom []ParametersInput `json:"parametersFrom,omitempty"`
	// Components are the choices per component.
	Components []ComponentChoice `json:"components,omitempty"`
	// Values are Helm values from ConfigMaps and Secrets. Later entries override earlier ones.
	Values []ValuesInput `json:"values,omitempty"`
	// TargetNamespace is the namespace of objects if neither the object nor its component sets
	// one. Defaults to the namespace of the install.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// CommonMetadata of all objects.
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`
	// Strict makes values that the chart does not know an error instead of a warning.
	Strict bool `json:"strict,omitempty"`
}

// ComponentChoice has the settings of one install for one component.
type ComponentChoice struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Digest is the expected digest of that version of a chart from a repository.
	Digest string `json:"digest,omitempty"`
	// Enabled defaults to true.
	Enabled *bool `json:"enabled,omitempty"`
	// CommonMetadata of the objects of the component. NamePrefix and NameSuffix replace those of
	// the stack.
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`
	NamePrefix     string          `json:"namePrefix,omitempty"`
	NameSuffix     string          `json:"nameSuffix,omitempty"`
	// KustomizeComponents are the paths of Components that the kustomization also uses, relative to
	// its folder.
	KustomizeComponents []string `json:"kustomizeComponents,omitempty"`
	// ReleaseName, CRDs, Hooks and SkipSchemaValidation are for Helm charts. They override those of
	// the stack.
	ReleaseName          string            `json:"releaseName,omitempty"`
	CRDs                 appsv1.CRDPolicy  `json:"crds,omitempty"`
	Hooks                appsv1.HookPolicy `json:"hooks,omitempty"`
	SkipSchemaValidation *bool             `json:"skipSchemaValidation,omitempty"`
	// Override has the reserved keys values, images, replicas and patches, and the
	// component's own parameters.
	Override map[string]any `json:"override,omitempty"`
}

// ValuesInput is the values document of a ConfigMap or a Secret. Errors never contain its content
// unless Public is set.
type ValuesInput struct {
	Component string `json:"component"`
	// Source describes the origin for messages, such as "ConfigMap site, key values.yaml".
	Source string `json:"source"`
	// Public is true if the content is not secret. Errors of template engines may then contain it.
	Public bool `json:"public,omitempty"`
	// TargetPath is that of the ValuesReference.
	TargetPath string `json:"targetPath,omitempty"`
	// Data is YAML; with a target path, a value of Helm's --set.
	Data []byte `json:"data"`
}

// UnmarshalJSON decodes integers as int64 and not as float64, so that choices that crossed a
// process boundary render the same.
func (c *Choices) UnmarshalJSON(data []byte) error {
	type plain Choices
	return utiljson.Unmarshal(data, (*plain)(c))
}

// UnmarshalJSON decodes integers as int64 and not as float64.
func (c *ComponentChoice) UnmarshalJSON(data []byte) error {
	type plain ComponentChoice
	return utiljson.Unmarshal(data, (*plain)(c))
}

// ChoicesFromInstall returns the choices of an install. values are the contents of its
// valuesFrom, in order, without optional references that do not exist. The caller sets
// ParametersFrom.
func ChoicesFromInstall(install *appsv1.KsctlInstall, values []ValuesInput) (Choices, error) {
	spec := &install.Spec
	out := Choices{
		StackVersion:    spec.StackVersion,
		Values:          values,
		TargetNamespace: spec.TargetNamespace,
		Strict:          spec.Strict,
		CommonMetadata:  commonMetadata(spec.CommonMetadata),
	}
	var err error
	if out.Parameters, err = rawMap(spec.Parameters); err != nil {
		return Choices{},
			&Error{Stack: spec.Stack, Field: "spec.parameters", Message: `field "spec.parameters" ` + err.Error()}
	}
	for _, choice := range spec.Components {
		override, err := rawMap(choice.Override)
		if err != nil {
			return Choices{},
				&Error{Stack: spec.Stack, Component: choice.Name, Field: "override", Message: `field "override" ` +
					err.Error()}
		}
		out.Components = append(out.Components, ComponentChoice{
			Name: choice.Name, Version: choice.Version, Digest: choice.Digest, Enabled: choice.Enabled,
			CommonMetadata: commonMetadata(choice.CommonMetadata), NamePrefix: choice.NamePrefix,
			NameSuffix: choice.NameSuffix, KustomizeComponents: choice.KustomizeComponents,
			ReleaseName: choice.ReleaseName, CRDs: choice.CRDs, Hooks: choice.Hooks,
			SkipSchemaValidation: choice.SkipSchemaValidation, Override: override,
		})
	}
	return out, nil
}

func commonMetadata(in *appsv1.CommonMetadata) *CommonMetadata {
	if in == nil {
		return nil
	}
	return &CommonMetadata{Labels: in.Labels, Annotations: in.Annotations}
}

// ValuesSource describes a values reference for messages.
func ValuesSource(ref appsv1.ValuesReference) string {
	if ref.Kind == appsv1.ClusterValues {
		return "the cluster"
	}
	return fmt.Sprintf("%s %s, key %s", ref.Kind, ref.Name, ValuesKey(ref))
}

// ValuesKey returns the key of a values reference in its ConfigMap or Secret.
func ValuesKey(ref appsv1.ValuesReference) string {
	return cmp.Or(ref.Key, "values.yaml")
}

func rawMap(raw *apiextensionsv1.JSON) (map[string]any, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return nil, nil
	}
	var v any
	if err := utiljson.Unmarshal(raw.Raw, &v); err != nil {
		return nil, fmt.Errorf("is not valid JSON")
	}
	if v == nil {
		return nil, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be a mapping")
	}
	return m, nil
}

// Nearest returns the known name that name was most likely meant to be. It returns an empty string
// if no known name is similar.
func Nearest(name string, known []string) string { return problem.Nearest(name, known) }

// RefusesGenerated reports whether the charts of an install must not generate values: spec.generate
// is Refuse, or the objects are published for others, who must not get secret values with them.
func RefusesGenerated(in *appsv1.KsctlInstall) bool {
	return in.Spec.Generate == appsv1.GenerateRefuse ||
		in.Spec.Publish != nil && in.Spec.Publish.Secrets != appsv1.SecretsInclude
}
