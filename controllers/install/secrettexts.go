package install

import (
	"fmt"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// readSecrets returns the Secrets of spec.valuesFrom and spec.parametersFrom that were read.
func (o *owner) readSecrets() map[valuesKey]cachedValues {
	out := map[valuesKey]cachedValues{}
	for _, name := range valuesSecretNames(&o.req.Object.Spec) {
		key := valuesKey{"Secret", name}
		if v, ok := o.values[key]; ok && len(v.data) > 0 {
			out[key] = v
		}
	}
	return out
}

// secretTexts returns the texts in Secrets: their lines, and the values of YAML documents.
func secretTexts(secrets map[valuesKey]cachedValues) (out []string) {
	for _, v := range secrets {
		for _, data := range v.data {
			out = append(out, string(data))
			for line := range strings.Lines(string(data)) {
				out = append(out, strings.TrimSpace(line))
			}
			var document any
			raw, err := yaml.YAMLToJSON(data)
			if err == nil && utiljson.Unmarshal(raw, &document) == nil {
				out = appendScalars(out, document)
			}
		}
	}
	return out
}

func appendScalars(out []string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			out = appendScalars(out, item)
		}
	case []any:
		for _, item := range v {
			out = appendScalars(out, item)
		}
	case string:
		out = append(out, v)
	case int64, float64:
		out = append(out, fmt.Sprint(v))
	}
	return out
}
