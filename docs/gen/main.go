// Command gen generates pages of docs from the code: api.md from the CRDs, controller-flags.md from
// the flags, metrics.md from the registered metrics, and go-api.txt from the packages that programs
// may import.
//
//	go run ./docs/gen          write them
//	go run ./docs/gen -check   fail if they are stale, and write nothing
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// goAPIFile lists the exported declarations that programs rely on. make docs accepts a change.
const goAPIFile = "go-api.txt"

func main() {
	check := flag.Bool("check", false, "Fail if a page is stale, and write nothing.")
	root := flag.String("root", ".", "The folder of the repository.")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	api, err := apiPage(filepath.Join(root, "config", "crd", "bases"))
	if err != nil {
		return err
	}
	measured, err := metricsPage()
	if err != nil {
		return err
	}
	declared, err := goAPI(root)
	if err != nil {
		return err
	}
	var stale []error
	for name, page := range map[string][]byte{"api.md": api, "controller-flags.md": flagsPage(), "metrics.md": measured,
		goAPIFile: declared} {
		path := filepath.Join(root, "docs", name)
		if !check {
			if err := os.WriteFile(path, page, 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, page) {
			stale = append(stale, fmt.Errorf("docs/%s is stale (run: make docs)", name))
			if name == goAPIFile {
				for _, declaration := range incompatible(have, page) {
					stale = append(stale,
						fmt.Errorf("programs that use or implement this no longer compile: %s", declaration))
				}
			}
		}
	}
	return errors.Join(stale...)
}
