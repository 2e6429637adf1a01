package engine

import (
	"fmt"
	"slices"
	"testing"
)

func TestSchemaDifferences(t *testing.T) {
	crd := func(properties, versions string) []byte {
		return fmt.Appendf(nil, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
			"versions": [{"name": "v1", "served": true, "storage": true, "unknown": true, "subresources": {"status": {}},
			"schema": {"openAPIV3Schema": {"type": "object", "properties": {%s}}}}%s]}}`, properties, versions)
	}
	const size = `"size": {"type": "integer", "minimum": 1, "description": "how large"}`
	const at = "/spec/versions/[name=v1]/schema/openAPIV3Schema/properties/"
	for name, tc := range map[string]struct {
		actual []byte
		want   []string
	}{
		"the same":        {actual: crd(size, "")},
		"another version": {actual: crd(size, `, {"name": "v2", "served": true, "storage": false}`)},
		"another type": {actual: crd(`"size": {"type": "string", "minimum": 1.0, "description": "how large"}`, ""),
			want: []string{at + "size/type"}},
		"more and less": {actual: crd(`"color/rgb": {"type": "string"}`, ""),
			want: []string{at + "color~1rgb", at + "size"}},
		"descriptions come last": {actual: crd(`"size": {"type": "string", "minimum": 1, "description": "how big"}`, ""),
			want: []string{at + "size/type", at + "size/description"}},
		"an unknown field": {actual: crd(`"size": {"type": "integer", "minimum": 1, "description": "how large", "x": 1}`, "")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := schemaDifferences(crd(size, ""), tc.actual)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
