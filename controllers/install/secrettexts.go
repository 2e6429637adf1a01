package install

import (
	"strings"

	"github.com/ksctl/gitops/stacks"
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

// secretTexts returns the texts in Secrets that no message may contain.
func secretTexts(secrets map[valuesKey]cachedValues) (out []string) {
	for _, v := range secrets {
		for _, data := range v.data {
			for _, text := range stacks.SecretTexts(data) {
				out = append(out, strings.TrimSpace(text))
			}
		}
	}
	return out
}
