// Package catalog pushes the catalog stacks to a registry. Each version of a stack becomes an OCI
// artifact like those of "flux push artifact".
package catalog

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	stackcatalog "github.com/ksctl/gitops/stacks/catalog"
)

// Media types of a Flux artifact.
const (
	configMediaType  types.MediaType = oci.FluxConfigMediaType
	contentMediaType types.MediaType = oci.FluxContentMediaType
)

// Push pushes every version of every catalog stack as <repository>/<stack>:<version> and returns
// their digests. It returns an error if the registry has a version with other content: a published
// version never changes.
func Push(ctx context.Context, repository string, annotations map[string]string,
	opts ...remote.Option) ([]name.Digest, error) {
	opts = append(opts, remote.WithContext(ctx))
	var out []name.Digest
	for _, stack := range stackcatalog.Names() {
		for _, version := range stackcatalog.Versions(stack) {
			tag, err := name.NewTag(repository+"/"+stack+":"+version, name.StrictValidation)
			if err != nil {
				return nil, err
			}
			pushed, err := push(ctx, tag, stack, version, annotations, opts)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", tag, err)
			}
			out = append(out, pushed)
		}
	}
	return out, nil
}

func push(ctx context.Context, tag name.Tag, stack, version string, annotations map[string]string,
	opts []remote.Option) (name.Digest, error) {
	files, err := stackcatalog.FS(stack, version)
	if err != nil {
		return name.Digest{}, err
	}
	var content bytes.Buffer
	if _, err := artifact.Pack(ctx, &content, files, artifact.PackOptions{}); err != nil {
		return name.Digest{}, err
	}
	layer := static.NewLayer(content.Bytes(), contentMediaType)
	if digest, err := publishedDigest(tag, layer, opts); err != nil || digest != "" {
		return tag.Digest(digest), err
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		configMediaType), mutate.Addendum{Layer: layer})
	if err != nil {
		return name.Digest{}, err
	}
	annotated := mutate.Annotations(img, annotations).(v1.Image) // it returns what it was given
	if err := remote.Write(tag, annotated, opts...); err != nil {
		return name.Digest{}, err
	}
	digest, err := annotated.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	return tag.Digest(digest.String()), nil
}

// publishedDigest returns the digest of tag; "" if the tag does not exist. It returns an error if
// the tag has other content than layer.
func publishedDigest(tag name.Tag, layer v1.Layer, opts []remote.Option) (string, error) {
	img, err := remote.Image(tag, opts...)
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	layers, err := img.Layers()
	if err != nil {
		return "", err
	}
	if len(layers) != 1 {
		return "", fmt.Errorf("the published artifact has %d layers, and a stack has one", len(layers))
	}
	// Compare the uncompressed content: another release of Go may compress it in another way.
	publishedHash, err := contentHash(layers[0])
	if err != nil {
		return "", err
	}
	if hash, err := contentHash(layer); err != nil || hash != publishedHash {
		return "", cmp.Or(err,
			errors.New("the published artifact has other content; increase the version of the changed stack"))
	}
	digest, err := img.Digest()
	return digest.String(), err
}

// contentHash returns the hash of the uncompressed tarball of a layer.
func contentHash(layer v1.Layer) (string, error) {
	packed, err := layer.Compressed()
	if err != nil {
		return "", err
	}
	defer func() { _ = packed.Close() }()
	content, err := gzip.NewReader(packed)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, content)
	return string(sum.Sum(nil)), err
}
