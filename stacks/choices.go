package stacks

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/problem"
)

// Error is one thing that is wrong with a stack or with what an install wants of it.
type Error = problem.Error

// Errors is everything that was found wrong at once.
type Errors = problem.Errors

// Choices is what one install wants of a stack, in plain values.
type Choices struct {
	// StackVersion, when set, must be exactly what the stack declares.
	StackVersion string `json:"stackVersion,omitempty"`
	// Parameters are the stack-wide choices.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Components are the choices for single components.
	Components []ComponentChoice `json:"components,omitempty"`
	// Values for Helm charts, from ConfigMaps and Secrets. Later ones win.
	Values []ValuesInput `json:"values,omitempty"`
	// TargetNamespace is where objects go that name no namespace and whose
	// component names none; that of the install when unset.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// Strict makes an error of a key that no schema knows.
	Strict bool `json:"strict,omitempty"`
}

// ComponentChoice is what one install wants of one component.
type ComponentChoice struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Digest that a chart of a repository must have in that version.
	Digest string `json:"digest,omitempty"`
	// Enabled is true when unset.
	Enabled *bool `json:"enabled,omitempty"`
	// Override has the reserved keys values, images, replicas and patches, and the
	// component's own parameters.
	Override map[string]any `json:"override,omitempty"`
}

// ValuesInput is the values document of a ConfigMap or a Secret. Unless it is public,
// its content never appears in an error.
type ValuesInput struct {
	Component string `json:"component"`
	// Source names it for people: ConfigMap site, key values.yaml.
	Source string `json:"source"`
	// Public says that the content is no secret: it may be repeated in errors of
	// template engines.
	Public bool `json:"public,omitempty"`
	// Data is YAML.
	Data []byte `json:"data"`
}

// UnmarshalJSON keeps whole numbers whole, so that choices which crossed a process
// boundary render the same.
func (c *Choices) UnmarshalJSON(data []byte) error {
	type plain Choices
	return utiljson.Unmarshal(data, (*plain)(c))
}

// UnmarshalJSON keeps whole numbers whole.
func (c *ComponentChoice) UnmarshalJSON(data []byte) error {
	type plain ComponentChoice
	return utiljson.Unmarshal(data, (*plain)(c))
}

// ChoicesFromInstall are the choices of an install. values are the contents of its
// valuesFrom, in their order, without the optional ones that are absent.
func ChoicesFromInstall(install *appsv1.KsctlInstall, values []ValuesInput) (Choices, error) {
	spec := &install.Spec
	out := Choices{
		StackVersion:    spec.StackVersion,
		Values:          values,
		TargetNamespace: spec.TargetNamespace,
		Strict:          spec.Strict,
	}
	var err error
	if out.Parameters, err = rawMap(spec.Parameters); err != nil {
		return Choices{}, &Error{Stack: spec.Stack, Field: "spec.parameters", Message: `field "spec.parameters" ` + err.Error()}
	}
	for i := range spec.Components {
		choice := &spec.Components[i]
		override, err := rawMap(choice.Override)
		if err != nil {
			return Choices{}, &Error{Stack: spec.Stack, Component: choice.Name, Field: "override", Message: `field "override" ` + err.Error()}
		}
		out.Components = append(out.Components, ComponentChoice{
			Name: choice.Name, Version: choice.Version, Digest: choice.Digest, Enabled: choice.Enabled, Override: override,
		})
	}
	return out, nil
}

// ValuesSource names a values reference for people.
func ValuesSource(ref appsv1.ValuesReference) string {
	if ref.Kind == appsv1.ClusterValues {
		return "the cluster"
	}
	return fmt.Sprintf("%s %s, key %s", ref.Kind, ref.Name, ValuesKey(ref))
}

// ValuesKey is the key of a values reference in its ConfigMap or Secret.
func ValuesKey(ref appsv1.ValuesReference) string {
	if ref.Key == "" {
		return "values.yaml"
	}
	return ref.Key
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
