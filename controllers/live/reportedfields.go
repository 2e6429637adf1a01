package live

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxReportedBytes bounds the reported fields of an object.
const maxReportedBytes = 4 << 10

// reportedFields returns the fields of an object that its ReportAnnotation names, as a JSON object;
// nil if it has none of them, or if they are larger than maxReportedBytes. Fields of Secrets are
// never reported.
func reportedFields(object map[string]any, gk schema.GroupKind, annotation string) json.RawMessage {
	var paths [][]string
	if annotation == "" || gk == secretKind || json.Unmarshal([]byte(annotation), &paths) != nil {
		return nil
	}
	out := map[string]any{}
	for _, path := range paths {
		if value, ok := lookup(object, path); ok && len(path) > 0 {
			setField(out, path, value)
		}
	}
	raw, err := json.Marshal(out)
	if err != nil || len(out) == 0 || len(raw) > maxReportedBytes {
		return nil
	}
	return raw
}

// setField sets a field of nested maps. A field that is set already has the field in it.
func setField(fields map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		next, ok := fields[key].(map[string]any)
		if !ok {
			if _, whole := fields[key]; whole {
				return
			}
			next = map[string]any{}
			fields[key] = next
		}
		fields = next
	}
	fields[path[len(path)-1]] = value
}
