package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/ksctl/gitops/controllers/live"
)

// schemaDifferences returns the paths at which the schemas and subresources of the versions that a
// CustomResourceDefinition serves differ from those of another one with these versions. Those of
// mere descriptions come last.
func schemaDifferences(wanted, actual []byte) ([]string, error) {
	want, err := versionsOf(wanted)
	if err != nil {
		return nil, err
	}
	have, err := versionsOf(actual)
	if err != nil {
		return nil, err
	}
	var out []string
	for name, v := range want {
		differences(v, have[name], "/spec/versions/[name="+name+"]", &out)
	}
	description := func(path string) int {
		if strings.HasSuffix(path, "/description") {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(description(a), description(b)), cmp.Compare(a, b))
	})
	return out, nil
}

// versionsOf returns the schema and the subresources of each served version. Unknown fields, which
// the API server drops, are not there.
func versionsOf(manifest []byte) (map[string]map[string]any, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(manifest, &crd); err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served {
			continue
		}
		b, err := json.Marshal(map[string]any{"schema": v.Schema, "subresources": v.Subresources})
		if err != nil {
			return nil, err
		}
		var plain map[string]any
		if err := json.Unmarshal(b, &plain); err != nil {
			return nil, err
		}
		out[v.Name] = plain
	}
	return out, nil
}

// differences appends the deepest paths at which two JSON values differ.
func differences(x, y any, path string, out *[]string) {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok {
			break
		}
		for field := range x {
			differences(x[field], y[field], path+live.FormatPointer([]string{field}), out)
		}
		for field := range y {
			if _, both := x[field]; !both {
				*out = append(*out, path+live.FormatPointer([]string{field}))
			}
		}
		return
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			differences(x[i], y[i], fmt.Sprintf("%s/%d", path, i), out)
		}
		return
	default:
		if x == y {
			return
		}
	}
	*out = append(*out, path)
}
