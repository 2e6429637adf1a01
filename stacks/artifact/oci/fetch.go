package oci

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Media types of an artifact that "flux push artifact" makes.
const (
	FluxConfigMediaType  = "application/vnd.cncf.flux.config.v1+json"
	FluxContentMediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// Selector chooses the layer that holds the files.
type Selector struct {
	// MediaType of the layer; the first layer is taken when empty.
	MediaType string
}

// Tree holds the files of an artifact until it is closed.
type Tree struct {
	// Annotations of the artifact's manifest.
	Annotations map[string]string

	dir string
}

// FS shows the files. It ends with Close.
func (t *Tree) FS() fs.FS { return os.DirFS(filepath.Join(t.dir, filesName)) }

// Close removes the files.
func (t *Tree) Close() error { return os.RemoveAll(t.dir) }

const (
	layerName = "layer"
	filesName = "files"
)

// Fetch gets the files of the artifact with a digest. The caller closes the
// tree. The error is an *Error.
func (r *Repository) Fetch(ctx context.Context, digest string, s Selector) (*Tree, error) {
	m, err := r.Manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	layer, err := r.choose(m, s)
	if err != nil {
		return nil, err
	}
	if r.client.temp != "" {
		if err := os.MkdirAll(r.client.temp, 0o700); err != nil {
			return nil, r.storage(err)
		}
	}
	dir, err := os.MkdirTemp(r.client.temp, "oci-")
	if err != nil {
		return nil, r.storage(err)
	}
	if err := r.unpack(ctx, dir, layer); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &Tree{Annotations: m.Annotations, dir: dir}, nil
}

// choose gives the layer that holds the files.
func (r *Repository) choose(m Manifest, s Selector) (v1.Descriptor, error) {
	what := r.name.Digest(m.Digest)
	if !hasLayers(m.MediaType) {
		return v1.Descriptor{}, fail(Unsupported, "%s is of type %.100q; expected one artifact, not an index or an image of several platforms", what, m.MediaType)
	}
	found := make([]string, 0, len(m.Layers))
	for _, l := range m.Layers {
		if s.MediaType == "" || string(l.MediaType) == s.MediaType {
			return l, r.fits(l)
		}
		found = append(found, fmt.Sprintf("%.100q", string(l.MediaType)))
	}
	if len(found) == 0 {
		return v1.Descriptor{}, fail(LayerNotFound, "%s has no layer", what)
	}
	return v1.Descriptor{}, fail(LayerNotFound, "%s has no layer of type %.100q; it has %s", what, s.MediaType, strings.Join(found[:min(5, len(found))], ", "))
}

func (r *Repository) fits(l v1.Descriptor) error {
	if limit := r.client.limits.DownloadBytes; l.Size < 0 || l.Size > limit {
		err := &artifact.Error{Reason: artifact.TooLarge, Message: fmt.Sprintf("the layer has %d bytes, at most %d are allowed", l.Size, limit)}
		return failBy(Reason(err.Reason), err, "%s can't be taken", r)
	}
	return nil
}

// unpack gets a layer into a file, and its files into a folder beside it.
func (r *Repository) unpack(ctx context.Context, dir string, layer v1.Descriptor) error {
	file, err := os.Create(filepath.Join(dir, layerName))
	if err != nil {
		return r.storage(err)
	}
	defer func() { _ = file.Close() }()
	disk := &disk{file: file}
	if err := r.copyBlob(ctx, disk, layer.Digest, layer.Size); err != nil {
		if disk.err != nil {
			return r.storage(disk.err)
		}
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return r.storage(err)
	}
	files := filepath.Join(dir, filesName)
	if err := os.Mkdir(files, 0o700); err != nil {
		return r.storage(err)
	}
	if _, err := artifact.Unpack(ctx, file, files, r.client.limits); err != nil {
		return r.judge(ctx, err, fmt.Sprintf("the layer of %s (%.100q)", r, string(layer.MediaType)))
	}
	return nil
}

func (r *Repository) storage(err error) *Error {
	return failBy(Reason(artifact.Storage), &artifact.Error{Reason: artifact.Storage, Message: "keeping the layer", Err: err}, "%s can't be kept", r)
}

// disk remembers that it was the disk that failed, not the registry.
type disk struct {
	file *os.File
	err  error
}

// Write implements io.Writer.
func (d *disk) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	if err != nil {
		d.err = err
	}
	return n, err
}
