package build

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// checkTimeout bounds the time in which workerd must load a script.
const checkTimeout = time.Minute

// Script is what Push makes an image of.
type Script struct {
	Name              string
	CompatibilityDate string
	// URLs of its files. The first file handles requests.
	URLs []string
	// Env are environment variables, and Bindings are their names for the script, while it is
	// checked.
	Env      []string
	Bindings []workerd.Binding
}

// Push downloads a script and pushes an image with one layer, which has its files. It does nothing
// if the image exists.
func (b *Builder) Push(ctx context.Context, image string, s Script) (Result, error) {
	out := Result{Image: image}
	tag, err := b.tag(image)
	if err != nil {
		return out, err
	}
	if err := checkScript(s); err != nil {
		return out, err
	}
	if out.Digest, err = b.digest(ctx, tag); err != nil || out.Digest != "" {
		return out, err
	}
	files, err := b.Downloader.Download(ctx, s.URLs)
	if err != nil {
		return out, err
	}
	script, err := newScript(s.Name, s.CompatibilityDate, files)
	if err != nil {
		return out, err
	}
	if err := b.check(ctx, script, files, s); err != nil {
		return out, err
	}
	img, err := scriptImage(script, files)
	if err != nil {
		return out, err
	}
	if err := b.retry(ctx, func() error { return b.write(ctx, tag, img) }); err != nil {
		return out, err
	}
	digest, err := img.Digest()
	out.Digest, out.Built = digest.String(), true
	return out, err
}

func checkScript(s Script) error {
	err := errors.Join(workerd.CheckName(s.Name), workerd.CheckCompatibilityDate(s.CompatibilityDate))
	if err == nil && len(s.URLs) == 0 {
		err = fmt.Errorf("script %s has no URL", s.Name)
	}
	if err != nil {
		return &terminalError{err}
	}
	return nil
}

// check has workerd load a script. A script that it does not load is a terminal error.
func (b *Builder) check(ctx context.Context, script workerd.Script, files []File, s Script) error {
	if b.Workerd == "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "script-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Content, 0o600); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = workerd.Check(ctx, b.Workerd,
		workerd.Worker{Name: script.Name, Script: script, Folder: dir, Bindings: s.Bindings}, s.Env)
	if _, refused := errors.AsType[*workerd.LoadError](err); refused {
		return &terminalError{fmt.Errorf("script %s: %w", script.Name, err)}
	}
	return err
}

// scriptImage returns the image of a script. It depends on the script alone.
func scriptImage(script workerd.Script, files []File) (v1.Image, error) {
	layer, err := scriptLayer(script, files)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{CreatedBy: "script " + script.Name}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, map[string]string{scriptAnnotation: script.Name}).(v1.Image), nil // as given
}

// scriptLayer returns a layer with the files of a script and its description. They are owned by
// root, and their modification time is the Unix epoch.
func scriptLayer(script workerd.Script, files []File) (v1.Layer, error) {
	description, err := json.Marshal(script)
	if err != nil {
		return nil, err
	}
	root := workerd.ScriptsFolder[1:]
	folder := root + "/" + script.Name
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{root, folder} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755,
			ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
	}
	for _, f := range append(files[:len(files):len(files)], File{workerd.ManifestFile, description}) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.Name, Mode: 0o644,
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
	}, tarball.WithMediaType(types.OCILayer))
}
