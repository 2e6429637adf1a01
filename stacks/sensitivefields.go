package stacks

import (
	"encoding/json"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/problem"
)

// SensitiveFields is the name of the Secret with the sensitive fields of a served object. It exists
// in memory only, and no Secret of a cluster can have this name. The values are treated as those of
// any Secret that an install reads.
const SensitiveFields = "(sensitive fields)"

// parametersKey is the key of the parameters in that Secret, and valuesKeyPrefix that of the Helm
// values of a component, before its name.
const (
	parametersKey   = "parameters"
	valuesKeyPrefix = "values."
)

// sensitiveFields are the sensitive parts of an install.
type sensitiveFields struct {
	data map[string][]byte
	// components are those with sensitive Helm values.
	components []string
}

// moveSensitive moves the secrets out of the parameters and the Helm values of an install. It
// returns an error if there are others.
func moveSensitive(install map[string]any) (out sensitiveFields, err error) {
	out.data = map[string][]byte{}
	if err := out.move(install, "parameters", parametersKey); err != nil {
		return out, err
	}
	components, _ := install["components"].([]any)
	for _, item := range components {
		component, _ := item.(map[string]any)
		override, _ := component["override"].(map[string]any)
		name, _ := component["name"].(string)
		if err := out.move(override, "values", valuesKeyPrefix+name); err != nil {
			return out, err
		}
		if _, moved := out.data[valuesKeyPrefix+name]; moved {
			out.components = append(out.components, name)
		}
	}
	if secret := expr.FindSecret(install); secret != nil {
		return out, problem.Newf("spec.serves.install: %s is sensitive: set it in parameters, or in values of a "+
			"component", secret.Name())
	}
	return out, nil
}

// move moves the secrets out of a field into a key of the data. The field is an object, also if a
// secret is the whole of it.
func (s *sensitiveFields) move(parent map[string]any, field, key string) error {
	public, secret := splitSecrets(parent[field])
	if secret == nil {
		return nil
	}
	if delete(parent, field); public != nil {
		parent[field] = public
	}
	revealed := expr.Reveal(secret)
	if revealed == nil { // an empty YAML document
		return nil
	}
	if _, isObject := revealed.(map[string]any); !isObject {
		return problem.Newf("spec.serves.install: %s is used as %s, and is not an object",
			expr.FindSecret(secret).Name(), field)
	}
	raw, err := json.Marshal(revealed)
	if err != nil {
		return err
	}
	s.data[key] = raw
	return nil
}

// addTo adds references to the data to the spec of an install.
func (s *sensitiveFields) addTo(spec *appsv1.KsctlInstallSpec) {
	if s.data[parametersKey] != nil {
		spec.ParametersFrom = append(spec.ParametersFrom,
			appsv1.ParametersReference{Kind: "Secret", Name: SensitiveFields, Key: parametersKey})
	}
	for _, component := range s.components {
		spec.ValuesFrom = append(spec.ValuesFrom, appsv1.ValuesReference{Kind: "Secret", Name: SensitiveFields,
			Key: valuesKeyPrefix + component, Component: component})
	}
}

// splitSecrets divides a value into its public and its secret part; nil for a part that is empty. A
// list with a secret is secret as a whole, because lists do not merge.
func splitSecrets(value any) (public, secret any) {
	m, isMap := value.(map[string]any)
	if !isMap {
		if expr.FindSecret(value) != nil {
			return nil, value
		}
		return value, nil
	}
	publicFields, secretFields := map[string]any{}, map[string]any{}
	for name, item := range m {
		p, s := splitSecrets(item)
		if p != nil || s == nil {
			publicFields[name] = p
		}
		if s != nil {
			secretFields[name] = s
		}
	}
	if len(secretFields) == 0 {
		return publicFields, nil
	}
	return publicFields, secretFields
}
