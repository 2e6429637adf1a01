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

func TestGenerateListsModules(t *testing.T) {
	// A test binary does not list its modules.
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./testdata/program").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document, err := Generate("controller", "1.2.3+x", binary)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Generate("controller", "1.2.3+x", binary)
	if err != nil || !bytes.Equal(document, again) {
		t.Errorf("generating again gives another SBOM: %v", err)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(document), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if got := bom.Metadata.Component.PackageURL; got != "pkg:golang/github.com/ksctl/gitops@1.2.3%2Bx" {
		t.Errorf("package URL %s", got)
	}
	found := map[string]string{}
	for _, c := range *bom.Components {
		found[c.Name] = c.Version
	}
	if found["std"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("std has version %q, want that of %s", found["std"], runtime.Version())
	}
	if !strings.HasPrefix(found["github.com/Masterminds/semver/v3"], "v3.") {
		t.Errorf("a dependency is missing in %v", found)
	}
	if deps := *(*bom.Dependencies)[0].Dependencies; len(deps) != len(*bom.Components) {
		t.Errorf("%d dependencies, %d components", len(deps), len(*bom.Components))
	}
}

func TestGenerateRejectsOtherFiles(t *testing.T) {
	if _, err := Generate("controller", "1.0.0", []byte("#!/bin/sh")); err == nil {
		t.Error("got no error for a script")
	}
}
