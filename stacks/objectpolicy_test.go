package stacks_test

import (
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func TestObjectPolicies(t *testing.T) {
	const (
		syncOptions = "argocd.argoproj.io/sync-options"
		flux        = "kustomize.toolkit.fluxcd.io/"
	)
	keep := stacks.ObjectPolicy{KeptWhenPruned: true, KeptWhenDeleted: true}
	createOnly, recreate := stacks.ObjectPolicy{CreateOnly: true}, stacks.ObjectPolicy{Recreate: true}
	ignoreHealth, none := stacks.ObjectPolicy{IgnoreHealth: true}, stacks.ObjectPolicy{}
	for _, tc := range []struct {
		name, value string
		want        stacks.ObjectPolicy
	}{
		{"ksctl.com/keep", "true", keep},
		{"ksctl.com/keep", "True", none},
		{flux + "prune", "disabled", keep},
		{flux + "prune", "Disabled", keep},
		{flux + "prune", "enabled", none},
		{syncOptions, "Prune=false", stacks.ObjectPolicy{KeptWhenPruned: true}},
		{syncOptions, "Delete=false", stacks.ObjectPolicy{KeptWhenDeleted: true}},
		{syncOptions, "Validate=false, Prune=false ,Delete=false", keep},
		{syncOptions, "Prune=confirm,Delete=confirm", none},
		{syncOptions, "Prune=falsehood", none},
		{"helm.sh/resource-policy", "keep", none}, // it has its own rule
		{"ksctl.com/create-only", "true", createOnly},
		{flux + "ssa", "IfNotPresent", createOnly},
		{flux + "ssa", "Merge", none},
		{flux + "ssa", "Ignore", none},
		{flux + "reconcile", "disabled", none},
		{"ksctl.com/recreate", "true", recreate},
		{"ksctl.com/recreate", "false", none},
		{flux + "force", "enabled", recreate},
		{flux + "force", "disabled", none},
		{syncOptions, "Force=true", recreate},
		{syncOptions, "Force=true,Replace=true", none},
		{syncOptions, "Replace=true", none},
		{"ksctl.com/ignore-health", "true", ignoreHealth},
		{"argocd.argoproj.io/ignore-healthcheck", "true", ignoreHealth},
		{"argocd.argoproj.io/ignore-healthcheck", "yes", none},
	} {
		got := stacks.ObjectPolicyOf(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			tc.name: tc.value, "example.com/x": "y"}}})
		if got != tc.want {
			t.Errorf("%s: %q: %+v, want %+v", tc.name, tc.value, got, tc.want)
		}
	}
	label := map[string]any{"metadata": map[string]any{"labels": map[string]any{flux + "prune": "disabled",
		"ksctl.com/recreate": "true"}}}
	if got := stacks.ObjectPolicyOf(label); got != keep {
		t.Errorf("labels: %+v", got)
	}
	for name, object := range map[string]map[string]any{"nothing": nil, "no metadata": {"metadata": "x"},
		"no map":  {"metadata": map[string]any{"annotations": "x"}},
		"no text": {"metadata": map[string]any{"annotations": map[string]any{"ksctl.com/keep": true}}}} {
		if got := stacks.ObjectPolicyOf(object); got != none {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRenderReadsObjectPolicies(t *testing.T) {
	result := mustRender(t, stacks.Request{Root: writeTree(t, map[string]string{
		"stack.yaml": components("- {name: app, manifests: [a.yaml]}"),
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {" +
			"ksctl.com/create-only: \"true\", ksctl.com/recreate: \"true\", ksctl.com/ignore-health: \"true\"}\n"}),
		Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}})
	if o := result.Components[0].Objects[0]; !o.CreateOnly || !o.Recreate || !o.IgnoreHealth {
		t.Errorf("create only %t, recreate %t, ignore health %t", o.CreateOnly, o.Recreate, o.IgnoreHealth)
	}
}
