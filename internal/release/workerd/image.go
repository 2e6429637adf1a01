package workerd

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ksctl/gitops/internal/release/image"
)

// interpreters are the paths of the dynamic linkers, and libraries the folders in which they
// search, by architecture.
var (
	interpreters = map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}
	libraries    = map[string]string{"amd64": "/lib/x86_64-linux-gnu", "arm64": "/lib/aarch64-linux-gnu"}
)

// libraryPackage is Debian's package of the C library, and copyrightFile its license.
const (
	libraryPackage = "libc6"
	copyrightFile  = "/usr/share/doc/libc6/copyright"
)

// sourceLists are the files with the repositories of Debian on a machine; the first one that exists
// counts. Repositories of others may lack the architecture.
var sourceLists = []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"}

// Layers returns the layers of an image with workerd at /workerd: its C library, and the program.
// The library is the one in a root folder, such as "/"; if that is "", it is downloaded from
// Debian.
func Layers(ctx context.Context, arch, root string) ([]image.Layer, error) {
	path, err := Program(ctx, arch)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	createdBy := "the C library of this machine"
	if root == "" {
		dir, err := os.MkdirTemp("", "libc-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if createdBy, err = downloadLibrary(ctx, arch, dir); err != nil {
			return nil, fmt.Errorf("getting the C library for linux/%s from Debian: %w", arch, err)
		}
		root = filepath.Join(dir, "root")
	}
	files, err := libraryFiles(program, arch, root)
	if err != nil {
		return nil, err
	}
	return []image.Layer{{CreatedBy: createdBy, Files: files},
		{CreatedBy: "workerd " + Version, Files: []image.File{{Name: "workerd", Mode: 0o755, Content: program}}}}, nil
}

// libraryFiles returns the libraries that a program needs, with its dynamic linker.
func libraryFiles(program []byte, arch, root string) ([]image.File, error) {
	parsed, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("reading workerd: %w", err)
	}
	names, err := parsed.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("reading workerd: %w", err)
	}
	slices.Sort(names)
	paths := []string{interpreters[arch]}
	for _, name := range names {
		if name != filepath.Base(interpreters[arch]) {
			paths = append(paths, libraries[arch]+"/"+name)
		}
	}
	var files []image.File
	for _, path := range paths {
		content, err := readIn(root, path)
		if err != nil {
			return nil, fmt.Errorf("reading the C library: %w", err)
		}
		files = append(files, image.File{Name: path[1:], Mode: 0o755, Content: content})
	}
	license, err := readIn(root, copyrightFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		files = append(files, image.File{Name: copyrightFile[1:], Mode: 0o644, Content: license})
	}
	return files, nil
}

// readIn reads a file below a root folder. Links, absolute ones, too, end below that folder.
func readIn(root, path string) ([]byte, error) {
	for range 10 {
		full := filepath.Join(root, path)
		target, err := os.Readlink(full)
		if err != nil {
			return os.ReadFile(full)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return nil, fmt.Errorf("too many links at %s", path)
}

// downloadLibrary downloads the C library to dir/root, and returns the name and version of its
// package. The package lists are in dir, too, so that another architecture needs no settings of
// this machine.
func downloadLibrary(ctx context.Context, arch, dir string) (string, error) {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not on PATH: build the image on Debian", program)
		}
	}
	i := slices.IndexFunc(sourceLists, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	if i < 0 {
		return "", fmt.Errorf("none of %s exists: build the image on Debian", strings.Join(sourceLists, ", "))
	}
	for _, folder := range []string{"state/lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return "", err
		}
	}
	apt := func(args ...string) error {
		return run(ctx, dir, "apt-get", append([]string{"--quiet", "--option=APT::Architecture=" + arch,
			"--option=APT::Architectures=" + arch, "--option=Dir::State=" + filepath.Join(dir, "state"),
			"--option=Dir::State::status=/dev/null", "--option=Dir::Etc::SourceList=" + sourceLists[i],
			"--option=Dir::Etc::SourceParts=/dev/null", "--option=Dir::Cache=" + filepath.Join(dir, "cache"),
			"--option=APT::Sandbox::User=root"}, args...)...)
	}
	if err := errors.Join(apt("update"), apt("download", libraryPackage)); err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(dir, libraryPackage+"_*.deb"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("apt-get download %s: got %d packages", libraryPackage, len(archives))
	}
	name := strings.TrimSuffix(filepath.Base(archives[0]), ".deb")
	return name, run(ctx, dir, "dpkg-deb", "--extract", archives[0], filepath.Join(dir, "root"))
}

func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, bytes.TrimSpace(out[max(0, len(out)-2000):]))
	}
	return nil
}
