package dynalite

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// imageFolder is the folder of dynalite in its image, and externalized that of modules of Node.js
// in Debian's package.
const (
	imageFolder  = "/dynalite"
	externalized = "/usr/share/nodejs"
)

// Image returns an image of dynalite, which is installed in a folder, with the Node.js of this
// machine. It listens on port 8000, and ignores arguments.
func Image(ctx context.Context, dir string) (v1.Image, error) {
	files, err := nodeFiles(ctx)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, file := range files {
		if err := addFile(w, file, file); err != nil {
			return nil, err
		}
	}
	for from, to := range map[string]string{dir: imageFolder, externalized: externalized} {
		if err := addFolder(w, from, to); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{files[0], path.Join(imageFolder, programFile), "8000", "0.0.0.0"},
		WorkingDir: imageFolder}
	return mutate.ConfigFile(img, config)
}

// nodeFiles returns the path of node, and those of its libraries.
func nodeFiles(ctx context.Context) ([]string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	libraries, err := exec.CommandContext(ctx, "ldd", node).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", node, err)
	}
	files := []string{node}
	for _, m := range regexp.MustCompile(`(?m)^\s.*?(/\S+) \(0x`).FindAllSubmatch(libraries, -1) {
		files = append(files, string(m[1]))
	}
	return files, nil
}

// addFolder adds the files of a folder, if it exists.
func addFolder(w *tar.Writer, from, to string) error {
	if _, err := os.Stat(from); os.IsNotExist(err) {
		return nil
	}
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return addFile(w, file, path.Join(to, filepath.ToSlash(below)))
	})
}

// addFile adds a file that everybody may read and execute. A link is followed.
func addFile(w *tar.Writer, from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: to[1:], Mode: 0o755,
		Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
