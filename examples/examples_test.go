// Package examples_test validates the example repositories that users copy.
package examples_test

import (
	"testing"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
)

func TestStandaloneIsValid(t *testing.T) { valid(t, "standalone") }

func TestArgoCDIsValid(t *testing.T) { valid(t, "argocd") }

func TestFluxIsValid(t *testing.T) { valid(t, "flux") }

func valid(t *testing.T, dir string) {
	t.Helper()
	c, err := checkout.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, version := range []string{"", "v1.28.0", "v1.36.3"} {
		report := c.Validate(t.Context(), stacks.Capabilities{KubeVersion: version})
		if got := report.String(); got != "1 stack, 2 installs: ok" || len(report.Warnings) > 0 {
			t.Errorf("Kubernetes %q: %s %v %v", version, got, report.Problems, report.Warnings)
		}
	}
}
