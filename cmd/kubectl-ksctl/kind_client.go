package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/ksctl/gitops/internal/kindclient"
)

func newKindClientCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "client STACK FOLDER",
		Short: "Write a Go package for a kind",
		Long: `Write a Go package for a kind to a folder of a Go module: the types of each version, and the go:generate lines
for their deep copies, a clientset, informers and listers. It prints the commands that run the generators, which need
Go. To update the package for a changed stack, repeat all of it.`,
		Example: "  kubectl ksctl kind client ~/src/fleet/stacks/shop ./shops",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeClient(cmd, args[0], args[1])
		},
	}
}

func writeClient(cmd *cobra.Command, stack, folder string) error {
	k, err := loadKind(stack)
	if err != nil {
		return err
	}
	importPath, generator, err := findModule(folder)
	if err != nil {
		return err
	}
	files, err := kindclient.GoPackage(k, importPath, generator)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := checkGenerated(filepath.Join(folder, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	var out strings.Builder
	for _, name := range names {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(file, files[name], 0o666); err != nil {
			return err
		}
		fmt.Fprintln(&out, file)
	}
	fmt.Fprintf(&out, "\nTo generate the clients, run in the Go module:\n"+
		"  go mod tidy\n  go generate %s\n  go mod tidy\n", importPath)
	_, err = cmd.OutOrStdout().Write([]byte(out.String()))
	return err
}

// checkGenerated returns an error for a file that this command did not write.
func checkGenerated(file string) error {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !bytes.HasPrefix(content, []byte(kindclient.Header)) {
		err = fmt.Errorf("%s exists, and kubectl ksctl kind client did not write it: use another folder", file)
	}
	return err
}

// findModule returns the import path of a folder, which need not exist, and the version of
// k8s.io/code-generator that fits its Go module.
func findModule(folder string) (importPath, generator string, err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return "", "", err
	}
	for root := folder; ; root = filepath.Dir(root) {
		file := filepath.Join(root, "go.mod")
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && root != filepath.Dir(root) {
			continue
		} else if err != nil {
			return "", "", fmt.Errorf("%s is in no Go module: run go mod init in the folder of your program", folder)
		}
		mod, err := modfile.ParseLax(file, content, nil)
		if err != nil {
			return "", "", err
		}
		below, err := filepath.Rel(root, folder)
		if err != nil {
			return "", "", err
		}
		return path.Join(modfile.ModulePath(content), filepath.ToSlash(below)), generatorVersion(mod), nil
	}
}

// generatorVersion returns the version of the generators for a Go module: that of its Kubernetes
// libraries, or that of ours if theirs are older, since the types need ours.
func generatorVersion(mod *modfile.File) string {
	out := kindclient.GeneratorVersion
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/client-go" && semver.Compare(r.Mod.Version, out) > 0 {
			out = r.Mod.Version
		}
	}
	return out
}
