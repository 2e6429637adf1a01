// Package registry runs an OCI registry in memory on loopback, and pushes trees
// of files to it in the form that Flux' OCIRepository reads.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
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
)

// Media types of an artifact that "flux push artifact" makes.
const (
	ConfigMediaType  types.MediaType = "application/vnd.cncf.flux.config.v1+json"
	ContentMediaType types.MediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// Annotations of the manifest from which Flux makes a revision.
const (
	createdAnnotation  = "org.opencontainers.image.created"
	sourceAnnotation   = "org.opencontainers.image.source"
	revisionAnnotation = "org.opencontainers.image.revision"
)

// Server is a registry that forgets everything when it is closed. Its methods
// may be called from several goroutines at once.
type Server struct {
	host   string
	http   *http.Server
	served chan error
	close  func() error
}

// New starts a registry on a free port. It speaks plain HTTP and runs until
// [Server.Close].
func New() (*Server, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the registry: %w", err)
	}
	s := &Server{host: listener.Addr().String(), served: make(chan error, 1)}
	s.http = &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	s.close = sync.OnceValue(s.stop)
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// Close stops the registry at once. Further calls do nothing.
func (s *Server) Close() error { return s.close() }

func (s *Server) stop() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop the registry: %w", err)
	}
	return nil
}

// Host returns host:port, as references to images begin.
func (s *Server) Host() string { return s.host }

// URL returns a repository's address as in an OCIRepository's spec.url, which
// must also say insecure: true.
func (s *Server) URL(repository string) string { return "oci://" + s.host + "/" + repository }

// Push packs a tree as a Flux artifact, pushes it as repository:tag and returns
// the digest of its manifest ("sha256:…"). Revision is the one of the origin,
// such as "main@sha1:…". The same arguments give the same digest; a tag that
// exists is moved.
func (s *Server) Push(ctx context.Context, repository, tag string, tree fs.FS, revision string) (string, error) {
	archive, err := artifacts.Archive(tree)
	if err != nil {
		return "", fmt.Errorf("push %s:%s: %w", repository, tag, err)
	}
	return s.PushArchive(ctx, repository, tag, archive, revision)
}

// PushArchive pushes bytes as the content of an artifact, as they are. It does
// what [Server.Push] does otherwise.
func (s *Server) PushArchive(ctx context.Context, repository, tag string, archive []byte, revision string) (string, error) {
	image, err := artifact(archive, map[string]string{
		createdAnnotation:  time.Unix(0, 0).UTC().Format(time.RFC3339),
		sourceAnnotation:   s.URL(repository),
		revisionAnnotation: revision,
	})
	if err != nil {
		return "", fmt.Errorf("make the artifact for %s:%s: %w", repository, tag, err)
	}
	reference, err := s.reference(repository + ":" + tag)
	if err != nil {
		return "", err
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("compute the digest of %s: %w", reference, err)
	}
	return digest.String(), nil
}

// Pull returns the content of an artifact: the one layer, still packed. The
// reference is repository:tag or repository@digest.
func (s *Server) Pull(ctx context.Context, reference string) ([]byte, error) {
	parsed, err := s.reference(reference)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(parsed, remote.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", parsed, err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", parsed, err)
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("%s has %d layers, not one", parsed, len(layers))
	}
	content, err := layers[0].Compressed()
	if err != nil {
		return nil, fmt.Errorf("pull the content of %s: %w", parsed, err)
	}
	defer func() { _ = content.Close() }()
	return io.ReadAll(content)
}

// reference parses what follows the host.
func (s *Server) reference(rest string) (name.Reference, error) {
	reference, err := name.ParseReference(s.host+"/"+strings.TrimPrefix(rest, "/"), name.StrictValidation, name.Insecure)
	if err != nil {
		return nil, fmt.Errorf("parse the reference %s: %w", rest, err)
	}
	return reference, nil
}

// artifact makes an OCI image with one layer in Flux' form.
func artifact(archive []byte, annotations map[string]string) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, ConfigMediaType)
	image, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return nil, errors.New("annotations made something else of the image")
	}
	return mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(archive, ContentMediaType)})
}
