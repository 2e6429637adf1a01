package kind

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestObjectSchemaCheck(t *testing.T) {
	const before = `{type: object, properties: {a: {type: string}, list: {type: array, items: {type: string}}}}`
	for name, c := range map[string]struct{ schema, spec, want string }{
		"the same":                        {schema: before, spec: `{a: x, list: [v]}`},
		"a lost field":                    {schema: `{type: object, properties: {list: {type: array, items: {type: string}}}}`, spec: `{a: x}`, want: "spec.a would be lost"},
		"a field that the object lacks":   {schema: `{type: object}`, spec: `{}`},
		"another type":                    {schema: `{type: object, properties: {a: {type: integer}}}`, spec: `{a: x}`, want: "spec.a: invalid value"},
		"a new required field":            {schema: `{type: object, required: [b], properties: {a: {type: string}, b: {type: string}}}`, spec: `{a: x}`, want: "spec.b: required value"},
		"a required field with a default": {schema: `{type: object, required: [b], properties: {a: {type: string}, b: {type: string, default: v}}}`, spec: `{a: x}`},
		"an enumeration":                  {schema: `{type: object, properties: {a: {type: string, enum: [v]}}}`, spec: `{a: secret}`, want: "spec.a: unsupported value"},
		"a rule":                          {schema: `{type: object, x-kubernetes-validations: [{rule: self.a != 'x'}], properties: {a: {type: string}}}`, spec: `{a: x}`, want: "spec: invalid value"},
		"a set":                           {schema: `{type: object, properties: {list: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}`, spec: `{list: [v, v]}`, want: "spec.list[1]: duplicate value"},
		"kept unknown fields":             {schema: `{type: object, x-kubernetes-preserve-unknown-fields: true}`, spec: `{a: x}`},
		"two":                             {schema: `{type: object, properties: {list: {type: array, maxItems: 1, items: {type: string}}}}`, spec: `{a: x, list: [v, w]}`, want: "spec.a would be lost, spec.list: too many"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newObjectSchema(propsOf(t, c.schema))
			if err != nil {
				t.Fatal(err)
			}
			var spec map[string]any
			decodeYAML(t, c.spec, &spec)
			copied, _ := json.Marshal(spec)
			if got := strings.Join(s.check(t.Context(), spec), ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if after, _ := json.Marshal(spec); !bytes.Equal(after, copied) {
				t.Errorf("the spec was changed to %s", after)
			}
		})
	}
}

func propsOf(t *testing.T, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var out apiextensionsv1.JSONSchemaProps
	decodeYAML(t, text, &out)
	return &out
}

func decodeYAML(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// Versions in which objects may be stored stay in the CustomResourceDefinition, and are not served.
func TestAddStoredVersions(t *testing.T) {
	version := func(name string) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: name == "v2"}
	}
	want := &apiextensionsv1.CustomResourceDefinition{}
	want.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version("v2"), version("v1")}
	have := &apiextensionsv1.CustomResourceDefinition{}
	have.Status.StoredVersions = []string{"v1alpha1", "v1"}
	addStoredVersions(want, have)
	var got []string
	for _, v := range want.Spec.Versions {
		if v.Served {
			got = append(got, v.Name)
		} else if !v.Storage {
			got = append(got, v.Name+" not served")
		}
	}
	if !slices.Equal(got, []string{"v2", "v1", "v1alpha1 not served"}) {
		t.Errorf("got %v", got)
	}
}
