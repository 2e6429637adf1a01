package build

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// maxWorkers is the largest number of workers of an image.
const maxWorkers = 100

// maxEarlierImages is the largest number of images in which the layer of a script is searched.
const maxEarlierImages = 100

// Worker is a script of an account.
type Worker struct {
	// Name is the name of the script.
	Name string
	// Image is the image that Push made of it.
	Image string
}

// Build pushes an image with the layers of the base image and those of the scripts of workers. If
// the image exists, it only records the time. The layer of a script whose image does not exist is
// taken from an earlier image in the repository.
func (b *Builder) Build(ctx context.Context, base, image string, workers []Worker) (Result, error) {
	out := Result{Image: image}
	tag, err := b.tag(image)
	if err != nil {
		return out, err
	}
	baseRef, err := b.reference(base, tag)
	if err != nil {
		return out, terminalf("base image %q is invalid: %w", base, err)
	}
	workers, err = sortWorkers(workers)
	if err != nil {
		return out, err
	}
	if err := b.recordUse(ctx, tag, &out); err != nil || out.Digest != "" {
		return out, err
	}
	var object remote.Taggable
	err = b.retry(ctx, func() error {
		layers, err := b.layers(ctx, tag, workers)
		if err != nil {
			return err
		}
		if object, err = b.compose(ctx, baseRef, layers); err != nil {
			return err
		}
		return b.write(ctx, tag, object)
	})
	if err != nil {
		return out, err
	}
	digest, err := object.(interface{ Digest() (v1.Hash, error) }).Digest()
	out.Digest, out.Built = digest.String(), true
	return out, err
}

// sortWorkers returns workers sorted by name.
func sortWorkers(workers []Worker) ([]Worker, error) {
	if len(workers) > maxWorkers {
		return nil, terminalf("an image has at most %d workers, not %d", maxWorkers, len(workers))
	}
	workers = slices.SortedFunc(slices.Values(workers),
		func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
	for i, w := range workers {
		if err := workerd.CheckName(w.Name); err != nil {
			return nil, &terminalError{err}
		}
		if i > 0 && workers[i-1].Name == w.Name {
			return nil, terminalf("worker %s occurs twice", w.Name)
		}
	}
	return workers, nil
}

// layers returns the layers of workers, to append them to a base image.
func (b *Builder) layers(ctx context.Context, tag name.Tag, workers []Worker) ([]mutate.Addendum, error) {
	var earlier []v1.Image // of the repository, listed when they are needed
	out := make([]mutate.Addendum, len(workers))
	for i, w := range workers {
		layer, err := b.scriptLayer(ctx, tag, w)
		if isNotFound(err) {
			if earlier == nil {
				if earlier, err = b.earlierImages(ctx, tag.Context()); err != nil {
					return nil, err
				}
			}
			layer, err = findLayer(earlier, w)
		}
		if err != nil {
			return nil, err
		}
		mediaType, err := layer.MediaType()
		if err != nil {
			return nil, err
		}
		out[i] = mutate.Addendum{Layer: layer, MediaType: mediaType,
			History:     v1.History{CreatedBy: "worker " + w.Name + " " + w.Image},
			Annotations: map[string]string{imageAnnotation: w.Image}}
	}
	return out, nil
}

// scriptLayer returns the layer of the image of a script, for the image of a tag.
func (b *Builder) scriptLayer(ctx context.Context, tag name.Tag, w Worker) (v1.Layer, error) {
	ref, err := b.reference(w.Image, tag)
	if err != nil {
		return nil, terminalf("worker %s: image %q is invalid: %w", w.Name, w.Image, err)
	}
	img, err := remote.Image(ref, b.options(ctx)...)
	if err != nil {
		return nil, registryError("reading", ref, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, registryError("reading", ref, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, registryError("reading", ref, err)
	}
	if script := manifest.Annotations[scriptAnnotation]; script != w.Name || len(layers) != 1 {
		return nil, terminalf("worker %s: image %s has the script %q, and a worker has the name of its script", w.Name,
			w.Image, script)
	}
	return layers[0], nil
}

// earlierImages returns images of a repository, of any platform.
func (b *Builder) earlierImages(ctx context.Context, repository name.Repository) ([]v1.Image, error) {
	tags, err := b.tags(ctx, repository)
	if err != nil {
		return nil, err
	}
	out := []v1.Image{}
	for _, t := range tags[:min(len(tags), maxEarlierImages)] {
		ref := repository.Tag(t)
		img, err := b.anyImage(ctx, ref)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, registryError("reading", ref, err)
		}
		out = append(out, img)
	}
	return out, nil
}

// anyImage returns an image, or the first image of an index.
func (b *Builder) anyImage(ctx context.Context, ref name.Reference) (v1.Image, error) {
	descriptor, err := remote.Get(ref, b.options(ctx)...)
	if err != nil {
		return nil, err
	}
	if !descriptor.MediaType.IsIndex() {
		return descriptor.Image()
	}
	index, err := descriptor.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) == 0 {
		return empty.Image, nil
	}
	// By reference, so that its layers can be mounted.
	return remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()), b.options(ctx)...)
}

// findLayer returns the layer of a worker from images that were built before.
func findLayer(images []v1.Image, w Worker) (v1.Layer, error) {
	for _, img := range images {
		manifest, err := img.Manifest()
		if err != nil {
			return nil, err
		}
		for _, l := range manifest.Layers {
			if l.Annotations[imageAnnotation] == w.Image {
				return img.LayerByDigest(l.Digest)
			}
		}
	}
	// It may be pushed now, for example to a changed registry.
	return nil, fmt.Errorf("worker %s: image %s does not exist, and no earlier image of the account has its layer",
		w.Name, w.Image)
}

// compose returns the base with layers on top: an index with its platforms, or an image.
func (b *Builder) compose(ctx context.Context, base name.Reference, layers []mutate.Addendum) (remote.Taggable, error) {
	descriptor, err := remote.Get(base, b.options(ctx)...)
	if err != nil {
		return nil, baseError(base, err)
	}
	annotations := map[string]string{createdAnnotation: b.Now().UTC().Format(time.RFC3339)}
	if !descriptor.MediaType.IsIndex() {
		img, err := descriptor.Image()
		if err != nil {
			return nil, baseError(base, err)
		}
		if img, err = mutate.Append(img, layers...); err != nil {
			return nil, err
		}
		return mutate.Annotations(img, annotations).(v1.Image), nil // as given
	}
	index, err := descriptor.ImageIndex()
	if err != nil {
		return nil, baseError(base, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, baseError(base, err)
	}
	platforms := platformsOf(manifest.Manifests)
	if len(platforms) == 0 {
		return nil, terminalf("base image %s has no image for linux/%s", base, runtime.GOARCH)
	}
	out := mutate.IndexMediaType(empty.Index, manifest.MediaType)
	for _, p := range platforms {
		img, err := remote.Image(base.Context().Digest(p.Digest.String()), b.options(ctx)...)
		if err != nil {
			return nil, baseError(base, err)
		}
		if img, err = mutate.Append(img, layers...); err != nil {
			return nil, err
		}
		out = mutate.AppendManifests(out,
			mutate.IndexAddendum{Add: mutate.Annotations(img, annotations).(v1.Image),
				Descriptor: v1.Descriptor{Platform: p.Platform}})
	}
	return mutate.Annotations(out, annotations).(v1.ImageIndex), nil
}

// platformsOf returns the images of an index: all of them, or if it has other content, too, that
// for this platform.
func platformsOf(manifests []v1.Descriptor) []v1.Descriptor {
	simple := func(d v1.Descriptor) bool {
		return d.MediaType.IsImage() && d.Platform != nil && d.Platform.OS != "unknown"
	}
	if !slices.ContainsFunc(manifests, func(d v1.Descriptor) bool { return !simple(d) }) {
		return manifests
	}
	for i, d := range manifests {
		if simple(d) && d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			return manifests[i : i+1]
		}
	}
	return nil
}

func baseError(base name.Reference, err error) error {
	if isNotFound(err) {
		return fmt.Errorf("base image %s does not exist", base)
	}
	return registryError("reading base image", base, err)
}
