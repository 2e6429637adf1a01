package image

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Push pushes an index and its images to a registry and returns the digest of the index.
func Push(ctx context.Context, ref name.Reference, index v1.ImageIndex, opts ...remote.Option) (name.Digest, error) {
	opts = append(opts, remote.WithContext(ctx))
	if err := remote.WriteIndex(ref, index, opts...); err != nil {
		return name.Digest{}, fmt.Errorf("pushing %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	return ref.Context().Digest(digest.String()), nil
}

// Attach pushes a document as a referrer of subject, which the registry must have
// (https://github.com/opencontainers/distribution-spec, referrers).
func Attach(ctx context.Context, subject name.Digest, mediaType string, document []byte,
	opts ...remote.Option) (name.Digest, error) {
	opts = append(opts, remote.WithContext(ctx))
	descriptor, err := remote.Head(subject, opts...)
	if err != nil {
		return name.Digest{}, fmt.Errorf("looking up %s: %w", subject, err)
	}
	// A registry derives the artifact type of a referrer from the media type of its config.
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(mediaType))
	img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(document, types.MediaType(mediaType))})
	if err != nil {
		return name.Digest{}, err
	}
	referring := mutate.Subject(img, *descriptor).(v1.Image) // it returns what it was given
	digest, err := referring.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	ref := subject.Context().Digest(digest.String())
	if err := remote.Write(ref, referring, opts...); err != nil {
		return name.Digest{}, fmt.Errorf("attaching to %s: %w", subject, err)
	}
	return ref, nil
}
