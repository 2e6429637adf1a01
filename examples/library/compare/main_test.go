package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCompareInstalls(t *testing.T) {
	const dev, prod = "clusters/dev/install.yaml", "clusters/prod/install.yaml"
	var out bytes.Buffer
	if err := run(t.Context(), &out, []string{"../../standalone", dev, prod}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		dev + ": shop 1.0.0\n  wave 0  base      7 objects\n  wave 1  cache     3 objects\n  wave 2  web       6 " +
			"objects\n" + prod + ": shop 1.0.0\n",
		"Deployment shop/frontend\n  spec.replicas: 2 → 4\n",
		"  spec.volumeClaimTemplates: nothing → ",
		"ConfigMap shop/shop-settings\n  data.PODINFO_LEVEL: \"debug\" → \"warn\"\n",
		"\n11 objects are the same\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestCompareWithItself(t *testing.T) {
	const prod = "clusters/prod/install.yaml"
	var out bytes.Buffer
	if err := run(t.Context(), &out, []string{"../../standalone", prod, prod}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "web       6 objects\n16 objects are the same\n") {
		t.Errorf("got\n%s", out.String())
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"../../standalone", "missing.yaml", "missing.yaml"},
		{"../standalone", "stacks/shop/stack.yaml", "README.md"}} {
		if err := run(t.Context(), &bytes.Buffer{}, args); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
