package live

import (
	"encoding/json"
	"testing"
)

func TestTrackedByTool(t *testing.T) {
	const mine, flux, helm = `{"f:metadata": {"f:labels": {"f:app": {}}}}`,
		`{"f:metadata": {"f:labels": {"f:kustomize.toolkit.fluxcd.io/name": {}}}}`,
		`{"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}}`
	entry := func(manager, operation, fields string) any {
		var set map[string]any
		if err := json.Unmarshal([]byte(fields), &set); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": set}
	}
	marked := map[string]any{"labels": map[string]any{"app": "x", FluxKustomizationLabel: "shop"},
		"annotations": map[string]any{HelmReleaseNameAnnotation: "shop"}}
	for name, tc := range map[string]struct {
		managed []any
		want    bool
	}{
		"no manager": {nil, false},
		"Flux": {[]any{entry(FieldManager, "Apply", mine),
			entry("kustomize-controller", "Apply", flux)}, true},
		"Helm": {[]any{entry(FieldManager, "Apply", mine), entry("helm", "Update", helm)},
			true},
		"the stack itself":           {[]any{entry(FieldManager, "Apply", flux)}, false},
		"a manager of another label": {[]any{entry("kubectl-label", "Update", mine)}, false},
		"Flux, and the stack renders it": {
			[]any{entry(FieldManager, "Apply", flux), entry("kustomize-controller", "Apply", flux)},
			true},
	} {
		t.Run(name, func(t *testing.T) {
			m := parseManagedFields(map[string]any{"managedFields": tc.managed})
			if got := m.trackedByTool(map[string]any{"metadata": marked}, nil); got != tc.want {
				t.Errorf("got %v", got)
			}
			gone := parseManagedFields(map[string]any{"managedFields": tc.managed})
			if gone.trackedByTool(map[string]any{"metadata": map[string]any{}}, nil) {
				t.Error("an absent label or annotation counts")
			}
		})
	}
}

func TestIgnoredTrackingFieldDoesNotCount(t *testing.T) {
	theirs := map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{"f:" +
		FluxKustomizationLabel: map[string]any{}}}}
	m := parseManagedFields(map[string]any{"managedFields": []any{map[string]any{"manager": "kustomize-controller",
		"operation": "Apply", "apiVersion": "v1", "fieldsV1": theirs}}})
	object := map[string]any{"metadata": map[string]any{"labels": map[string]any{FluxKustomizationLabel: "shop"}}}
	for ignored, want := range map[string]bool{
		"/metadata": false, "/metadata/labels": false, "/metadata/labels/kustomize.toolkit.fluxcd.io~1name": false,
		"/metadata/annotations": true, "/metadata/labels/kustomize.toolkit.fluxcd.io": true, "/spec": true,
	} {
		if got := m.trackedByTool(object, parseIgnored(`["`+ignored+`"]`)); got != want {
			t.Errorf("with %s ignored: %v", ignored, got)
		}
	}
}
