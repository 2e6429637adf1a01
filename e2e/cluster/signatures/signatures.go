// Package signatures signs artifacts in a registry on loopback as Cosign and
// Notation do, honestly or not, with keys and authorities that it makes up.
package signatures

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

// Artifact is what a signature is put beside.
type Artifact struct {
	// Repository as host:port/path. It speaks plain HTTP.
	Repository string
	// Digest of the artifact.
	Digest string
	// Of is the digest that is signed, when it is another one.
	Of string
	// Tampered puts Digest in the place of Of after signing, and leaves the signature.
	Tampered bool
}

func (a Artifact) signed() string {
	if a.Of != "" {
		return a.Of
	}
	return a.Digest
}

// named is what stands in what is pushed.
func (a Artifact) named() Artifact {
	if a.Tampered {
		a.Of = ""
	}
	return a
}

func (a Artifact) reference(digest string) (name.Digest, error) {
	return name.NewDigest(a.Repository+"@"+digest, name.Insecure)
}

// describe gives what a manifest says of an artifact that it refers to.
func (a Artifact) describe(ctx context.Context, digest string) (v1.Descriptor, error) {
	ref, err := a.reference(digest)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d, err := remote.Head(ref, remote.WithContext(ctx))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("find what to sign: %w", err)
	}
	return *d, nil
}

// refer pushes content of a type as what refers to the artifact.
func (a Artifact) refer(ctx context.Context, kind string, content []byte, contentType string) error {
	subject, err := a.describe(ctx, a.Digest)
	if err != nil {
		return err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(kind))
	image, err = mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(content, types.MediaType(contentType))})
	if err != nil {
		return err
	}
	image, ok := mutate.Subject(image, subject).(v1.Image)
	if !ok {
		return errors.New("the subject made something else of the image")
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
