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
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Media types of artifacts that "flux push artifact" creates.
const (
	FluxConfigMediaType  = "application/vnd.cncf.flux.config.v1+json"
	FluxContentMediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// Tree holds the files of an artifact until it is closed.
type Tree struct {
	// Annotations of the artifact's manifest.
	Annotations map[string]string

	dir string
}

// FS returns the files. It can't be used after Close.
func (t *Tree) FS() fs.FS { return os.DirFS(filepath.Join(t.dir, filesName)) }

// Close removes the files.
func (t *Tree) Close() error { return os.RemoveAll(t.dir) }

const (
	layerName = "layer"
	filesName = "files"
)

// Fetch downloads and unpacks the artifact with a digest. layerType is the media type of the layer
// that holds the files; the first layer is used when empty. The caller must close the tree. The
// error is an *Error.
func (r *Repository) Fetch(ctx context.Context, digest, layerType string) (*Tree, error) {
	m, err := r.Manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	layer, err := r.selectLayer(m, layerType)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.client.tempDir, 0o700); err != nil {
		return nil, r.storageError(err)
	}
	dir, err := os.MkdirTemp(r.client.tempDir, "oci-")
	if err != nil {
		return nil, r.storageError(err)
	}
	if err := r.unpack(ctx, dir, layer); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &Tree{Annotations: m.Annotations, dir: dir}, nil
}

// selectLayer returns the layer that holds the files.
func (r *Repository) selectLayer(m Manifest, layerType string) (v1.Descriptor, error) {
	what := r.name.Digest(m.Digest)
	if !types.MediaType(m.MediaType).IsImage() {
		return v1.Descriptor{},
			newError(Unsupported,
				"%s has the type %.100q; expected a single artifact, not an index or a multi-platform image", what,
				m.MediaType)
	}
	found := make([]string, 0, len(m.Layers))
	for _, l := range m.Layers {
		if layerType == "" || string(l.MediaType) == layerType {
			return l, r.checkLayerSize(l)
		}
		found = append(found, fmt.Sprintf("%.100q", string(l.MediaType)))
	}
	if len(found) == 0 {
		return v1.Descriptor{}, newError(LayerNotFound, "%s has no layer", what)
	}
	return v1.Descriptor{}, newError(LayerNotFound, "%s has no layer of type %.100q; it has %s", what, layerType,
		strings.Join(found[:min(5, len(found))], ", "))
}

func (r *Repository) checkLayerSize(l v1.Descriptor) error {
	if limit := r.client.limits.DownloadBytes; l.Size < 0 || l.Size > limit {
		err := &artifact.Error{Reason: artifact.TooLarge,
			Message: fmt.Sprintf("the layer has %d bytes, at most %d are allowed", l.Size, limit)}
		return wrapError(err.Reason, err, "%s can't be used", r)
	}
	return nil
}

// unpack downloads a layer to a file in dir, and unpacks it into a subdirectory of dir.
func (r *Repository) unpack(ctx context.Context, dir string, layer v1.Descriptor) error {
	file, err := os.Create(filepath.Join(dir, layerName))
	if err != nil {
		return r.storageError(err)
	}
	defer func() { _ = file.Close() }()
	w := &artifact.TrackingWriter{W: file}
	if err := r.copyBlob(ctx, w, layer.Digest, layer.Size); err != nil {
		if w.Err != nil {
			return r.storageError(w.Err)
		}
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return r.storageError(err)
	}
	files := filepath.Join(dir, filesName)
	if err := os.Mkdir(files, 0o700); err != nil {
		return r.storageError(err)
	}
	if _, err := artifact.Unpack(ctx, file, files, r.client.limits); err != nil {
		return r.classifyError(ctx, err, fmt.Sprintf("the layer of %s (%.100q)", r, string(layer.MediaType)))
	}
	return nil
}

func (r *Repository) storageError(err error) *Error {
	return wrapError(artifact.Storage,
		&artifact.Error{Reason: artifact.Storage, Message: "storing the layer", Err: err}, "%s can't be stored", r)
}
