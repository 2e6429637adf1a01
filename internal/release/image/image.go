// Package image puts a static binary into an image without a container engine: the
// binary, the certificates that it trusts, a user that isn't root, and nothing else.
// The same binary becomes the same image, byte for byte, wherever it is built.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user and group of the process, as config/manager/deployment.yaml has them.
const user = "65532:65532"

// Binary is a program for one platform.
type Binary struct {
	Platform v1.Platform
	// Name is that of the file, in the root of the image.
	Name    string
	Content []byte
	// Beside are further programs that it starts, in the root of the image, too.
	Beside []Program
}

// Program is a file of an image.
type Program struct {
	Name    string
	Content []byte
}

// Options say what an image tells about itself.
type Options struct {
	// Created is that of the commit, not of the build.
	Created time.Time
	// Labels of the images, and annotations of their index: org.opencontainers.image.*.
	Labels map[string]string
}

// Build makes the image of one platform.
func Build(b Binary, o Options) (v1.Image, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	// Certificates change seldom, so they are a layer of their own, below.
	files := []file{{certificatesPath, 0o644, roots}}
	for _, p := range b.Beside {
		files = append(files, file{p.Name, 0o755, p.Content})
	}
	for _, f := range append(files, file{b.Name, 0o755, b.Content}) {
		layer, err := f.layer()
		if err != nil {
			return nil, fmt.Errorf("layer of %s: %w", f.name, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{CreatedBy: "COPY /" + f.name, Created: v1.Time{Time: o.Created}}})
		if err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = b.Platform.OS, b.Platform.Architecture, b.Platform.Variant
	config.Created = v1.Time{Time: o.Created}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + b.Name}, WorkingDir: "/", Labels: o.Labels}
	return mutate.ConfigFile(img, config)
}

// Index makes one image of those of several platforms, in the order given.
func Index(binaries []Binary, o Options) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		img, err := Build(b, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &b.Platform}})
	}
	annotated, ok := mutate.Annotations(index, o.Labels).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("an annotated index is none: %T", annotated)
	}
	return annotated, nil
}

// file is one file of a layer, by its path from the root.
type file struct {
	name    string
	mode    int64
	content []byte
}

// layer has the file and the folders above it, owned by root and of no time.
func (f file) layer() (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range parents(f.name) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0)}); err != nil {
		return nil, err
	}
	if _, err := w.Write(f.content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// parents are the folders of a path, the outermost first.
func parents(name string) []string {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	return append(parents(dir), dir)
}
