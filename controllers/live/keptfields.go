package live

import (
	"encoding/json"
)

// maxKeptValueBytes bounds the value of a KeptField in the index.
const maxKeptValueBytes = 1024

// keptFields returns the fields at the ignored paths, and /spec/replicas if the object was scaled.
func keptFields(object map[string]any, m *managedFields, ignored []ignoredPath, scaled, secret bool) []KeptField {
	var out []KeptField
	replicas := false
	for _, path := range ignored {
		// Few objects have so many fields that their values would need much memory.
		out = append(out, keptField(object, m, path, secret || len(out) >= maxIgnoredPaths))
		replicas = replicas || path.pointer == replicasPath.pointer
	}
	if scaled && !replicas {
		out = append(out, keptField(object, m, replicasPath, secret))
	}
	return out
}

func keptField(object map[string]any, m *managedFields, path ignoredPath, withhold bool) KeptField {
	k := KeptField{Path: path.pointer}
	if path.keys != nil {
		k.At = FormatPointer(path.keys)
	}
	v, present := lookup(object, path.tokens)
	if m.atomicAncestor(object, path) > 0 {
		k.Ours = present
	} else {
		k.Ours = present && owns(m.ours, object, path)
		// If both own a part of the field, the API server would delete our part of an
		// omitted field.
		k.Others = m.othersOwn(object, path) && (!k.Ours || !isComposite(v))
	}
	if !present {
		return k
	}
	value, err := json.Marshal(v)
	if withhold || err != nil || len(value) > maxKeptValueBytes {
		k.Withheld = true
	} else {
		k.Value = value
	}
	return k
}

func isComposite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
