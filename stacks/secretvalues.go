package stacks

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/values"
)

// conceal returns a value of a Secret with an *expr.Secret for each parameter that the schema lists
// in it, unless the schema says sensitive: false.
func conceal(schema any, path []string, value any) any {
	s, _ := schema.(map[string]any)
	if s["sensitive"] == false {
		return concealMarked(schema, path, value)
	}
	properties, _ := s["properties"].(map[string]any)
	m, isMap := value.(map[string]any)
	listed := func(key string) bool { _, ok := properties[key]; return ok }
	if isMap && (len(path) == 0 || allKeys(m, listed)) {
		out := map[string]any{}
		for key, item := range m {
			out[key] = conceal(properties[key], append(slices.Clone(path), key), item)
		}
		return out
	}
	return expr.NewSecret(values.Dotted(append([]string{"stack"}, path...)), value)
}

// concealMarked conceals the values for which the schema says sensitive: true.
func concealMarked(schema any, path []string, value any) any {
	s, _ := schema.(map[string]any)
	if s["sensitive"] == true {
		return expr.NewSecret(values.Dotted(append([]string{"stack"}, path...)), value)
	}
	m, isMap := value.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	if !isMap || len(properties) == 0 {
		return value
	}
	out := maps.Clone(m)
	for key, item := range m {
		out[key] = concealMarked(properties[key], append(slices.Clone(path), key), item)
	}
	return out
}

func allKeys(m map[string]any, ok func(string) bool) bool {
	for key := range m {
		if !ok(key) {
			return false
		}
	}
	return len(m) > 0
}

// mergeParameters is values.Merge for maps with an *expr.Secret. What is merged from a secret
// mapping and another one is secret.
func mergeParameters(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for key, above := range over {
		below := out[key]
		b, isMap := revealed(below).(map[string]any)
		a, ok := revealed(above).(map[string]any)
		if !isMap || !ok {
			out[key] = above
			continue
		}
		merged := mergeParameters(b, a)
		out[key] = merged
		for _, side := range []any{below, above} {
			if secret, ok := side.(*expr.Secret); ok {
				out[key] = expr.NewSecret(secret.Name(), expr.Reveal(merged))
			}
		}
	}
	return out
}

// revealed returns the value of an *expr.Secret, and other values as they are.
func revealed(v any) any {
	if secret, ok := v.(*expr.Secret); ok {
		return expr.Reveal(secret)
	}
	return v
}

// concealAs returns a copy of the plain values with an *expr.Secret where given has one.
func concealAs(given, plain any) any {
	if secret, ok := given.(*expr.Secret); ok {
		return expr.NewSecret(secret.Name(), plain)
	}
	g, _ := given.(map[string]any)
	p, ok := plain.(map[string]any)
	if !ok || g == nil {
		return plain
	}
	out := maps.Clone(p)
	for key, value := range p {
		out[key] = concealAs(g[key], value)
	}
	return out
}

// secretAt returns the secret on a path of keys and indexes; nil if there is none.
func secretAt(v any, path []string) *expr.Secret {
	for _, key := range path {
		if secret, ok := v.(*expr.Secret); ok {
			return secret
		}
		m, _ := v.(map[string]any)
		v = m[key]
	}
	secret, _ := v.(*expr.Secret)
	return secret
}

func isComposite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// secretUse is the message about a secret in a place where it may not be.
func secretUse(secret *expr.Secret) string {
	return fmt.Sprintf("uses parameter %q, which is from a Secret: it may go into the data of Secrets and into Helm "+
		"values only; or set sensitive: false in its schema", secret.Name())
}

// revealValues returns an override with the secrets in its values, and reports others.
func (r *resolver) revealValues(p *ResolvedComponent, override map[string]any) map[string]any {
	out := maps.Clone(override)
	for _, key := range slices.Sorted(maps.Keys(override)) {
		secret := expr.FindSecret(override[key])
		if secret == nil {
			continue
		}
		p.sensitive = true
		out[key] = expr.Reveal(override[key])
		if key != "values" {
			r.add(p.Component.Name, "parameters.map", "parameters.map: %s %s", key, secretUse(secret))
			delete(out, key)
		}
	}
	return out
}

func hasSecretFields(fields []resolvedField) bool {
	return slices.ContainsFunc(fields, func(f resolvedField) bool { return expr.FindSecret(f.value) != nil })
}

// fieldValue returns the value of a field for an object. A secret goes into the data of a Secret
// only: as text, and for data in base64.
func fieldValue(o *manifest.Object, f *resolvedField) (any, error) {
	secret := expr.FindSecret(f.value)
	if secret == nil {
		return f.value, nil
	}
	root, parts := f.path.Root()
	if o.Group != "" || o.Kind != "Secret" || root != "data" && root != "stringData" {
		return nil, fmt.Errorf("%s", secretUse(secret))
	}
	encode := func(v any) (any, error) {
		if expr.FindSecret(v) == nil {
			return v, nil
		}
		text, err := secretText(expr.Reveal(v))
		switch {
		case root == "data":
			text = base64.StdEncoding.EncodeToString([]byte(text))
		case err == nil && !utf8.ValidString(text):
			err = fmt.Errorf("needs text in UTF-8 under stringData; set it under data")
		}
		return text, err
	}
	if parts > 1 {
		return encode(f.value)
	}
	m, ok := revealed(f.value).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("needs a mapping; parameter %q is none", secret.Name())
	}
	out := map[string]any{}
	for key, value := range m {
		if f.value == any(secret) {
			value = expr.NewSecret(secret.Name(), value)
		}
		var err error
		if out[key], err = encode(value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// secretText returns a value as the text in a Secret: what is no text, as JSON.
func secretText(v any) (string, error) {
	if text, ok := v.(string); ok {
		return text, nil
	}
	if v == nil {
		return "", fmt.Errorf("needs a value; the one from the Secret is null")
	}
	raw, err := manifest.Canonical(v)
	return string(raw), err
}

// keyedBy reports whether a manifest of a component has a generated value, or may have one of a
// Secret.
func keyedBy(p *ResolvedComponent, values *generated.Values) func(manifest []byte) bool {
	if p.sensitive {
		return func([]byte) bool { return true }
	}
	return values.Finder()
}
