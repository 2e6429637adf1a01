package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// module is the main module, as in the output of go list -json.
type module struct{ Path, Dir string }

// testPackage is a package with tests, as in the output of go list -json.
type testPackage struct {
	ImportPath                                                    string
	Module                                                        module
	Imports, TestGoFiles, XTestGoFiles, TestImports, XTestImports []string
	// Folder is the path of the package in the module.
	Folder string `json:"-"`
}

// listPackages returns the packages with tests that match the patterns.
func listPackages(ctx context.Context, patterns []string) ([]testPackage, error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Module,Imports,TestGoFiles,XTestGoFiles,TestImports,XTestImports"},
			patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var packages []testPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p testPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}
		p.Folder = strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

// imports reports whether the package or its tests import a package of the module.
func (p testPackage) imports(folder string) bool {
	path := p.Module.Path + "/" + folder
	return slices.Contains(p.Imports, path) || slices.Contains(p.TestImports, path) ||
		slices.Contains(p.XTestImports, path)
}

// runsPrograms reports whether the tests run programs of cmd/.
func (p testPackage) runsPrograms() bool {
	return p.imports("e2e/programs") || p.imports("e2e/harness") || p.Folder == "e2e/demo"
}

// pure reports whether the tests run without an API server.
func (p testPackage) pure() bool {
	return !p.imports("e2e/suite") && !p.imports("e2e/cluster") && !p.imports("e2e/harness")
}

// printPure prints the packages that match the patterns and whose tests need no API server.
func printPure(ctx context.Context, patterns []string) error {
	packages, err := listPackages(ctx, patterns)
	for _, p := range packages {
		if p.pure() {
			fmt.Println(p.ImportPath)
		}
	}
	return err
}
