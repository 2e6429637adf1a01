// Package signatures signs artifacts in a registry on loopback as Cosign and Notation do, with keys
// and certificate authorities that it generates. It can also create invalid signatures.
package signatures

import (
	"cmp"
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

// Artifact is the artifact that a signature is attached to.
type Artifact struct {
	// Repository is host:port/path. The registry serves plain HTTP.
	Repository string
	// Digest is the digest of the artifact.
	Digest string
	// SignedDigest is the digest that the signature covers, if it differs from Digest.
	SignedDigest string
	// Tampered replaces SignedDigest by Digest after signing, and keeps the signature.
	Tampered bool
}

func (a Artifact) signedDigest() string { return cmp.Or(a.SignedDigest, a.Digest) }

// pushed returns the artifact as the pushed payload describes it.
func (a Artifact) pushed() Artifact {
	if a.Tampered {
		a.SignedDigest = ""
	}
	return a
}

func (a Artifact) reference(digest string) (name.Digest, error) {
	return name.NewDigest(a.Repository+"@"+digest, name.Insecure)
}

// descriptor returns the OCI descriptor of a digest in the artifact's repository.
func (a Artifact) descriptor(ctx context.Context, digest string) (v1.Descriptor, error) {
	ref, err := a.reference(digest)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d, err := remote.Head(ref, remote.WithContext(ctx))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading the manifest of %s: %w", ref, err)
	}
	return *d, nil
}

// pushReferrer pushes content as an OCI referrer of the artifact, with an artifact type (kind).
func (a Artifact) pushReferrer(ctx context.Context, artifactType string, content []byte, contentType string) error {
	subject, err := a.descriptor(ctx, a.Digest)
	if err != nil {
		return err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.MediaType(artifactType))
	image, err = mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(content, types.MediaType(contentType))})
	if err != nil {
		return err
	}
	image, ok := mutate.Subject(image, subject).(v1.Image)
	if !ok {
		return errors.New("setting the subject of the image: the result is not an image")
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	ref, err := a.reference(digest.String())
	if err != nil {
		return err
	}
	return remote.Write(ref, image, remote.WithContext(ctx))
}
