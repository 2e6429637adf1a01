// Package registry runs an in-memory OCI registry on loopback, and pushes file trees to it as Flux
// artifacts, which an OCIRepository reads.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/loopback"
)

// Media types of an artifact of "flux push artifact".
const (
	ConfigMediaType  types.MediaType = "application/vnd.cncf.flux.config.v1+json"
	ContentMediaType types.MediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// Annotations of the manifest from which Flux derives the revision.
const (
	createdAnnotation  = "org.opencontainers.image.created"
	sourceAnnotation   = "org.opencontainers.image.source"
	revisionAnnotation = "org.opencontainers.image.revision"
)

// Server is a registry whose content is lost on Close. It is safe for concurrent use.
type Server struct{ http *loopback.Server }

// New starts a registry on a free port. It serves plain HTTP until [Server.Close].
func New() (*Server, error) {
	server, err := loopback.Serve(registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithReferrersSupport(true)))
	if err != nil {
		return nil, fmt.Errorf("listening for the registry: %w", err)
	}
	return &Server{http: server}, nil
}

// Close stops the registry immediately. Further calls do nothing.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil {
		return fmt.Errorf("stopping the registry: %w", err)
	}
	return nil
}

// Host returns host:port, the prefix of image references.
func (s *Server) Host() string { return s.http.Address }

// URL returns a repository's address for spec.url of an OCIRepository, which must also set
// insecure: true.
func (s *Server) URL(repository string) string { return "oci://" + s.Host() + "/" + repository }

// Push packs a tree as a Flux artifact, pushes it as repository:tag and returns the digest of its
// manifest ("sha256:…"). The revision is that of the origin, such as "main@sha1:…". The same
// arguments give the same digest. An existing tag is moved.
func (s *Server) Push(ctx context.Context, repository, tag string, tree fs.FS, revision string) (string, error) {
	archive, err := artifacts.Archive(tree)
	if err != nil {
		return "", fmt.Errorf("pushing %s:%s: %w", repository, tag, err)
	}
	image, err := artifact(archive, map[string]string{
		createdAnnotation:  time.Unix(0, 0).UTC().Format(time.RFC3339),
		sourceAnnotation:   s.URL(repository),
		revisionAnnotation: revision,
	})
	if err != nil {
		return "", fmt.Errorf("creating the artifact for %s:%s: %w", repository, tag, err)
	}
	reference, err := s.reference(repository + ":" + tag)
	if err != nil {
		return "", err
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", reference, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of %s: %w", reference, err)
	}
	return digest.String(), nil
}

// Pull returns the packed content of an artifact, which is its only layer. The reference is
// repository:tag or repository@digest.
func (s *Server) Pull(ctx context.Context, reference string) ([]byte, error) {
	parsed, err := s.reference(reference)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(parsed, remote.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("pulling %s: %w", parsed, err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", parsed, err)
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("artifact %s has %d layers, expected 1", parsed, len(layers))
	}
	content, err := layers[0].Compressed()
	if err != nil {
		return nil, fmt.Errorf("pulling the content of %s: %w", parsed, err)
	}
	defer func() { _ = content.Close() }()
	return io.ReadAll(content)
}

// reference parses a reference without its host.
func (s *Server) reference(rest string) (name.Reference, error) {
	reference, err := name.ParseReference(s.Host()+"/"+strings.TrimPrefix(rest, "/"), name.StrictValidation,
		name.Insecure)
	if err != nil {
		return nil, fmt.Errorf("parsing the reference %s: %w", rest, err)
	}
	return reference, nil
}

// artifact returns an OCI image with one layer in the format of Flux.
func artifact(archive []byte, annotations map[string]string) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, ConfigMediaType)
	image, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return nil, errors.New("annotating the image: the result is not an image")
	}
	return mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(archive, ContentMediaType)})
}
