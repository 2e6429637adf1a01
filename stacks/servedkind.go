package stacks

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefinitionKind is the kind of the objects that define other kinds.
var DefinitionKind = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}

// IsDefinition reports whether the id of an object is that of a CustomResourceDefinition.
func IsDefinition(id string) bool {
	ref, err := ParseID(id)
	return err == nil && ref.GroupKind() == DefinitionKind
}

// ServedKind is what an API server serves because of a CustomResourceDefinition, without schemas.
type ServedKind struct {
	Scope      string   `json:"scope"`
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind"`
	ShortNames []string `json:"shortNames,omitempty"`
	// Versions are the served versions.
	Versions []string `json:"versions,omitempty"`
}

// ServedKindOf returns what a CustomResourceDefinition serves; nil for an object that is none.
func ServedKindOf(gk schema.GroupKind, object map[string]any) *ServedKind {
	if gk != DefinitionKind {
		return nil
	}
	// Without schemas, which are most of it.
	spec, _ := object["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	out := &ServedKind{Scope: text(spec, "scope"), Plural: text(names, "plural"), Kind: text(names, "kind")}
	// As the API server defaults them.
	out.Singular = cmp.Or(text(names, "singular"), strings.ToLower(out.Kind))
	out.ListKind = cmp.Or(text(names, "listKind"), out.Kind+"List")
	shortNames, _ := names["shortNames"].([]any)
	for _, n := range shortNames {
		if n, ok := n.(string); ok {
			out.ShortNames = append(out.ShortNames, n)
		}
	}
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		if v, _ := v.(map[string]any); v["served"] == true {
			out.Versions = append(out.Versions, text(v, "name"))
		}
	}
	return out
}

func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// Lacks returns what a kind does not serve of another one; empty if it serves all of that under the
// same names and in the same scope.
func (k *ServedKind) Lacks(wanted *ServedKind) string {
	var out []string
	for _, f := range []struct{ name, wanted, has string }{
		{"scope", wanted.Scope, k.Scope}, {"kind", wanted.Kind, k.Kind}, {"list kind", wanted.ListKind, k.ListKind},
		{"plural name", wanted.Plural, k.Plural}, {"singular name", wanted.Singular, k.Singular},
	} {
		if f.wanted != f.has {
			out = append(out, fmt.Sprintf("%s %q (it has %q)", f.name, f.wanted, f.has))
		}
	}
	for _, n := range wanted.ShortNames {
		if !slices.Contains(k.ShortNames, n) {
			out = append(out, fmt.Sprintf("short name %q (it has %q)", n, strings.Join(k.ShortNames, ", ")))
		}
	}
	for _, v := range wanted.Versions {
		if !slices.Contains(k.Versions, v) {
			out = append(out, fmt.Sprintf("version %s (it serves %s)", v, strings.Join(k.Versions, ", ")))
		}
	}
	return strings.Join(out, ", ")
}

// Equal reports whether two kinds serve the same; both may be nil.
func (k *ServedKind) Equal(other *ServedKind) bool {
	if k == nil || other == nil {
		return k == other
	}
	return reflect.DeepEqual(k, other)
}
