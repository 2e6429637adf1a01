// Package image builds container images of static binaries without a container engine. An image has
// the binaries, root certificates and a non-root user, and nothing else. The same binary gives the
// same image, byte for byte, wherever it is built.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the UID and GID of the process, as in config/manager/deployment.yaml.
const user = "65532:65532"

// Content is the content of an image, for one platform.
type Content struct {
	Platform v1.Platform
	// Programs are in the root folder of the image. The first one is the entrypoint.
	Programs []Program
	// Layers are between the root certificates and the programs.
	Layers []Layer
}

// Layer is a set of files in an image that change together.
type Layer struct {
	// CreatedBy describes the origin of the files.
	CreatedBy string
	Files     []File
}

// File is a file in a layer. Its name is the path from the root folder, without a leading slash.
type File struct {
	Name    string
	Mode    int64
	Content []byte
}

// Program is an executable file in an image.
type Program struct {
	Name    string
	Content []byte
}

// Options holds the metadata of an image.
type Options struct {
	// Created is the creation time: that of the commit, not of the build.
	Created time.Time
	// Labels are the labels of the images and the annotations of their index:
	// org.opencontainers.image.*.
	Labels map[string]string
}

// Build returns the image of one platform.
func Build(c Content, o Options) (v1.Image, error) {
	roots, err := rootCertificates()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	// Certificates change rarely, so they have a separate layer at the bottom. The main program
	// changes most, so it is at the top.
	layers := append([]Layer{fileLayer(File{certificatesPath, 0o644, roots})}, c.Layers...)
	for _, p := range slices.Concat(c.Programs[1:], c.Programs[:1]) {
		layers = append(layers, fileLayer(File{p.Name, 0o755, p.Content}))
	}
	for _, l := range layers {
		layer, err := l.build()
		if err != nil {
			return nil, fmt.Errorf("building the layer of %s: %w", l.CreatedBy, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{CreatedBy: l.CreatedBy, Created: v1.Time{Time: o.Created}}})
		if err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = c.Platform.OS, c.Platform.Architecture, c.Platform.Variant
	config.Created = v1.Time{Time: o.Created}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + c.Programs[0].Name}, WorkingDir: "/",
		Labels: o.Labels}
	return mutate.ConfigFile(img, config)
}

// Index builds a multi-platform image from the content for each platform, in the given order.
func Index(contents []Content, o Options) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, c := range contents {
		img, err := Build(c, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Platform, err)
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &c.Platform}})
	}
	return mutate.Annotations(index, o.Labels).(v1.ImageIndex), nil // it returns what it was given
}

// fileLayer returns a layer with one file.
func fileLayer(f File) Layer { return Layer{CreatedBy: "COPY /" + f.Name, Files: []File{f}} }

// build returns a layer with the files and their parent folders. They are owned by root, and their
// modification time is the Unix epoch.
func (l Layer) build() (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	written := map[string]bool{}
	for _, f := range l.Files {
		for _, dir := range parents(f.Name) {
			if written[dir] {
				continue
			}
			written[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755,
				ModTime: time.Unix(0, 0)}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode,
			Size: int64(len(f.Content)), ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// parents returns the parent folders of a path, the outermost first.
func parents(name string) []string {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	return append(parents(dir), dir)
}
