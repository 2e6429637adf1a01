package stacks

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

func servedKindOf(t *testing.T, manifest string) *ServedKind {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		t.Fatal(err)
	}
	return ServedKindOf(DefinitionKind, object)
}

// A manifest is compared with the defaults that the API server adds to it.
func TestServedKindOfManifestAndOfStoredObject(t *testing.T) {
	manifest := servedKindOf(t, `spec:
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true}, {name: v1beta1, served: false}]
`)
	stored := servedKindOf(t, `spec:
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList, shortNames: [wd], categories: [all]}
  versions: [{name: v2, served: true}, {name: v1, served: true}]
`)
	if lacks := stored.Lacks(manifest); lacks != "" {
		t.Errorf("the stored object lacks %s", lacks)
	}
	if got, want := manifest.Lacks(stored), `short name "wd" (it has ""), version v2 (it serves v1)`; got != want {
		t.Errorf("the manifest lacks %s, want %s", got, want)
	}
	same := *stored
	if manifest.Equal(stored) || !stored.Equal(&same) || manifest.Equal(nil) || !(*ServedKind)(nil).Equal(nil) {
		t.Error("equality is wrong")
	}
	if !slices.Equal(manifest.Versions, []string{"v1"}) {
		t.Errorf("served versions %v", manifest.Versions)
	}
	if ServedKindOf(Ref{Kind: "ConfigMap"}.GroupKind(), nil) != nil || servedKindOf(t, "spec: []") == nil {
		t.Error("only other kinds have none")
	}
}
