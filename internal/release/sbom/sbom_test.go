package sbom

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func TestABinaryTellsWhatItIsMadeOf(t *testing.T) {
	// A test's own binary does not list its modules.
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document, err := Of("controller", "1.2.3+x", binary)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Of("controller", "1.2.3+x", binary)
	if err != nil || !bytes.Equal(document, again) {
		t.Errorf("the second is another: %v", err)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(document), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if got := bom.Metadata.Component.PackageURL; got != "pkg:golang/github.com/ksctl/gitops@1.2.3%2Bx" {
		t.Errorf("it is %s", got)
	}
	found := map[string]string{}
	for _, c := range *bom.Components {
		found[c.Name] = c.Version
	}
	if found["std"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("std is %q, Go %s", found["std"], runtime.Version())
	}
	if !strings.HasPrefix(found["github.com/Masterminds/semver/v3"], "v3.") {
		t.Errorf("a module that it is built with is not among %v", found)
	}
	if deps := *(*bom.Dependencies)[0].Dependencies; len(deps) != len(*bom.Components) {
		t.Errorf("%d dependencies, %d components", len(deps), len(*bom.Components))
	}
}

func TestWhatIsNoBinaryOfGoIsRefused(t *testing.T) {
	if _, err := Of("controller", "1.0.0", []byte("#!/bin/sh")); err == nil {
		t.Error("a script was taken")
	}
}
