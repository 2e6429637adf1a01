// Package build makes the images of the Workers system: an image with the files of each script, and
// an image with the scripts of an account on top of the image that runs them.
//
// An image is named by the hash of its inputs, so nothing is built for a tag that exists.
package build

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Annotations of images.
const (
	// scriptAnnotation of the image of a script is the name of the script.
	scriptAnnotation = "workers.ksctl.com/script"
	// imageAnnotation of a layer is the image of the script that the layer is from.
	imageAnnotation = "workers.ksctl.com/image"
	// createdAnnotation is the time when an image was last the result of Build, in RFC 3339.
	createdAnnotation = "org.opencontainers.image.created"
)

// maxPushes is how often a push is done if the registry deletes content meanwhile, or is not
// available.
const maxPushes = 6

// Builder makes images.
type Builder struct {
	// Insecure permits plain HTTP for the registry of the image or the repository of a call. Other
	// registries, such as that of a base image, need TLS.
	Insecure bool
	// Remote are the options of requests to registries, such as credentials.
	Remote []remote.Option
	// Backoff is the delay after the nth push that failed, from 0.
	Backoff func(n int) time.Duration
	// Now returns the time that is recorded in images of accounts.
	Now func() time.Time
	// Downloader downloads the files of scripts.
	Downloader *Downloader
	// Workerd is the path of the program that checks scripts; "" checks none.
	Workerd string
}

// Result is what a run did.
type Result struct {
	Image  string `json:"image"`
	Digest string `json:"digest,omitempty"`
	// Built is false if the image existed.
	Built   bool   `json:"built"`
	Message string `json:"message,omitempty"`
}

func (b *Builder) nameOptions() []name.Option {
	if b.Insecure {
		return []name.Option{name.StrictValidation, name.Insecure}
	}
	return []name.Option{name.StrictValidation}
}

// tag parses the reference of an image that is written.
func (b *Builder) tag(image string) (name.Tag, error) {
	tag, err := name.NewTag(image, b.nameOptions()...)
	if err != nil {
		return tag, terminalf("image %q is not registry/repository:tag: %w", image, err)
	}
	return tag, nil
}

// reference parses the reference of an image that is read for a tag.
func (b *Builder) reference(image string, tag name.Tag) (name.Reference, error) {
	ref, err := name.ParseReference(image, name.StrictValidation)
	if err != nil || ref.Context().RegistryStr() != tag.RegistryStr() {
		return ref, err
	}
	return name.ParseReference(image, b.nameOptions()...)
}

func (b *Builder) options(ctx context.Context) []remote.Option {
	return append([]remote.Option{remote.WithContext(ctx)}, b.Remote...)
}

// digest returns the digest of a tag; "" if the tag does not exist.
func (b *Builder) digest(ctx context.Context, tag name.Tag) (string, error) {
	descriptor, err := remote.Head(tag, b.options(ctx)...)
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", registryError("looking up", tag, err)
	}
	return descriptor.Digest.String(), nil
}

// retry does a push again, from its beginning, while isRetryable reports that this may help.
func (b *Builder) retry(ctx context.Context, push func() error) error {
	for n := 0; ; n++ {
		err := push()
		if err == nil || !isRetryable(err) || n+1 == maxPushes {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(b.Backoff(n)):
		}
	}
}

// write pushes an image or an index.
func (b *Builder) write(ctx context.Context, tag name.Tag, object remote.Taggable) error {
	var err error
	switch o := object.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, o, b.options(ctx)...)
	case v1.Image:
		err = remote.Write(tag, o, b.options(ctx)...)
	default:
		err = fmt.Errorf("%T is neither an image nor an index", object)
	}
	if err != nil {
		return registryError("pushing", tag, err)
	}
	return nil
}
