package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Manifest is the manifest of an artifact or an index.
type Manifest struct {
	// Digest of Raw, as sha256:<hex>.
	Digest    string
	MediaType string
	// Raw is the serialized manifest, over which Digest is computed.
	Raw []byte
	// Layers and annotations of the artifact; an index has no layers.
	Layers       []v1.Descriptor
	Annotations  map[string]string
	ArtifactType string
}

// Manifest fetches the manifest with a digest. The error is an *Error.
func (r *Repository) Manifest(ctx context.Context, digest string) (Manifest, error) {
	if _, err := artifact.ParseDigest(digest); err != nil {
		return Manifest{}, wrapError(Unsupported, err, "the manifest can't be read")
	}
	return r.manifest(ctx, r.name.Digest(digest))
}

// ManifestByTag fetches the manifest of a tag. The error is an *Error.
func (r *Repository) ManifestByTag(ctx context.Context, tag string) (Manifest, error) {
	return r.manifest(ctx, r.name.Tag(tag))
}

func (r *Repository) manifest(ctx context.Context, ref name.Reference) (Manifest, error) {
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		return Manifest{}, r.classifyError(ctx, err, ref.String())
	}
	if err := requireSHA256(d.Digest, ref); err != nil {
		return Manifest{}, err
	}
	m := Manifest{Digest: d.Digest.String(), MediaType: string(d.MediaType), Raw: d.Manifest,
		Annotations: d.Annotations, ArtifactType: d.ArtifactType}
	if d.MediaType.IsImage() {
		parsed, err := v1.ParseManifest(bytes.NewReader(d.Manifest))
		if err != nil {
			return Manifest{}, newError(artifact.Malformed, "the manifest %s is not well-formed", m.Digest)
		}
		m.Layers = parsed.Layers
	}
	return m, nil
}

// Blob reads a small blob of at most limit bytes into memory and checks its digest. The
// error is an *Error.
func (r *Repository) Blob(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	if d.Size < 0 || d.Size > limit {
		return nil, newError(artifact.TooLarge, "the blob %s of %s has %d bytes, at most %d are allowed", d.Digest, r,
			d.Size, limit)
	}
	var b bytes.Buffer
	if err := r.copyBlob(ctx, &b, d.Digest, d.Size); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// copyBlob writes a blob of known size to w. The written content has the digest only if
// copyBlob returns no error.
func (r *Repository) copyBlob(ctx context.Context, w io.Writer, digest v1.Hash, size int64) error {
	want, err := artifact.ParseDigest(digest.String())
	if err != nil {
		return wrapError(Unsupported, err, "a blob of %s can't be read", r)
	}
	ref := r.name.Digest(digest.String())
	layer, err := r.puller.Layer(withBlobLimit(ctx, size), ref)
	if err != nil {
		return r.classifyError(ctx, err, ref.String())
	}
	content, err := layer.Compressed()
	if err != nil {
		return r.classifyError(ctx, err, ref.String())
	}
	defer func() { _ = content.Close() }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), content)
	got := hex.EncodeToString(sum.Sum(nil))
	switch {
	case n >= size && got != want:
		return newError(artifact.DigestMismatch, "the %d bytes of %s have the digest sha256:%s", n, ref, got)
	case err != nil:
		return r.classifyError(ctx, err, ref.String())
	case n != size || got != want:
		return newError(OperationFailed, "%s ended early, after %d of %d bytes", ref, n, size)
	}
	return nil
}

// Referrers lists the descriptors of manifests that claim to refer to the manifest with a
// digest, such as signatures. It verifies nothing. The error is an *Error.
func (r *Repository) Referrers(ctx context.Context, digest string) ([]v1.Descriptor, error) {
	if _, err := artifact.ParseDigest(digest); err != nil {
		return nil, wrapError(Unsupported, err, "the referrers can't be read")
	}
	what := "the referrers of " + r.name.Digest(digest).String()
	index, err := remote.Referrers(r.name.Digest(digest),
		append(r.options(), remote.WithContext(ctx), remote.Reuse(r.puller))...)
	if err != nil {
		return nil, r.classifyError(ctx, err, what)
	}
	raw, err := index.RawManifest()
	if err != nil {
		return nil, r.classifyError(ctx, err, what)
	}
	var parsed v1.IndexManifest
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, newError(artifact.Malformed, "%s: the list is not well-formed", what)
	}
	return parsed.Manifests, nil
}
