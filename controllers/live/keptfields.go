package live

import (
	"encoding/json"
)

// maxKeptValue bounds a value that the index keeps, in bytes.
const maxKeptValue = 1024

// keptFields are the ignored paths, and the replicas if somebody scaled.
func keptFields(object map[string]any, m *managed, ignored []string, scaled, secret bool) []KeptField {
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

func keptField(object map[string]any, m *managed, path string, secret bool) KeptField {
	tokens, err := parsePointer(path)
	if err != nil {
		return KeptField{Path: path}
	}
	k := KeptField{Path: path}
	v, present := lookup(object, tokens)
	if m.atomicAbove(object, tokens) > 0 {
		k.Ours = present
	} else {
		k.Ours = present && owns(m.ours, object, tokens)
		for _, o := range m.others {
			k.Others = k.Others || owns(o, object, tokens)
		}
		// Each has a part of it: left out, ours would go.
		k.Others = k.Others && (!k.Ours || !composite(v))
	}
	if !present {
		return k
	}
	if secret {
		k.Withheld = true
		return k
	}
	value, err := json.Marshal(v)
	if err != nil || len(value) > maxKeptValue {
		k.Withheld = true
		return k
	}
	k.Value = value
	return k
}

func composite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
