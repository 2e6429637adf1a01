package live

import (
	"encoding/json"
)

// maxKeptValueBytes bounds the value of a KeptField in the index.
const maxKeptValueBytes = 1024

// keptFields returns the fields at the ignored paths, and /spec/replicas if the object was scaled.
func keptFields(object map[string]any, m *managedFields, ignored []string, scaled, secret bool) []KeptField {
	var out []KeptField
	replicas := false
	for _, path := range ignored {
		out = append(out, keptField(object, m, path, secret))
		replicas = replicas || path == replicasPointer
	}
	if scaled && !replicas {
		out = append(out, keptField(object, m, replicasPointer, secret))
	}
	return out
}

func keptField(object map[string]any, m *managedFields, path string, secret bool) KeptField {
	tokens, err := parsePointer(path)
	if err != nil {
		return KeptField{Path: path}
	}
	k := KeptField{Path: path}
	v, present := lookup(object, tokens)
	if m.atomicAncestor(object, tokens) > 0 {
		k.Ours = present
	} else {
		k.Ours = present && owns(m.ours, object, tokens)
		for _, o := range m.others {
			k.Others = k.Others || owns(o, object, tokens)
		}
		// If both own a part of the field, the API server would delete our part of an
		// omitted field.
		k.Others = k.Others && (!k.Ours || !isComposite(v))
	}
	if !present {
		return k
	}
	if secret {
		k.Withheld = true
		return k
	}
	value, err := json.Marshal(v)
	if err != nil || len(value) > maxKeptValueBytes {
		k.Withheld = true
		return k
	}
	k.Value = value
	return k
}

func isComposite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
