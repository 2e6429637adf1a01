package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Push writes an index and what it lists to a registry and returns it by its digest.
func Push(ctx context.Context, ref name.Reference, index v1.ImageIndex, opts ...remote.Option) (name.Digest, error) {
	opts = append(opts, remote.WithContext(ctx))
	if err := remote.WriteIndex(ref, index, opts...); err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	return ref.Context().Digest(digest.String()), nil
}

// Attach pushes a document about something that the registry has, as one that refers
// to it (https://github.com/opencontainers/distribution-spec, referrers).
func Attach(ctx context.Context, subject name.Digest, mediaType string, document []byte, opts ...remote.Option) (name.Digest, error) {
	opts = append(opts, remote.WithContext(ctx))
	of, err := remote.Head(subject, opts...)
	if err != nil {
		return name.Digest{}, fmt.Errorf("look at %s: %w", subject, err)
	}
	// A registry tells the kind of a document by its config's type.
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(mediaType))
	img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(document, types.MediaType(mediaType))})
	if err != nil {
		return name.Digest{}, err
	}
	referring, ok := mutate.Subject(img, *of).(v1.Image)
	if !ok {
		return name.Digest{}, errors.New("an image with a subject is none")
	}
	digest, err := referring.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	ref := subject.Context().Digest(digest.String())
	if err := remote.Write(ref, referring, opts...); err != nil {
		return name.Digest{}, fmt.Errorf("attach to %s: %w", subject, err)
	}
	return ref, nil
}
