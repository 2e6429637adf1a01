package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// rawManifest is a manifest with the content that it was read with, except for annotations.
type rawManifest struct {
	content   []byte
	mediaType types.MediaType
}

// RawManifest implements remote.Taggable.
func (m *rawManifest) RawManifest() ([]byte, error) { return m.content, nil }

// MediaType returns the media type that the manifest is pushed with.
func (m *rawManifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }

func (m *rawManifest) digest() string {
	sum := sha256.Sum256(m.content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// recordUse pushes the manifest of a tag with the time of now, so that Purge keeps the tags that
// were used last. It sets the digest of the result; none if the tag does not exist.
func (b *Builder) recordUse(ctx context.Context, tag name.Tag, out *Result) error {
	descriptor, err := remote.Get(tag, b.options(ctx)...)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return registryError("looking up", tag, err)
	}
	content, err := setCreated(descriptor.Manifest, b.Now())
	if err != nil {
		return registryError("reading", tag, err)
	}
	manifest := &rawManifest{content, descriptor.MediaType}
	err = b.retry(ctx, func() error { return remote.Put(tag, manifest, b.options(ctx)...) })
	switch code := status(err); {
	case err == nil:
		out.Digest = manifest.digest()
	case code >= http.StatusBadRequest && code < http.StatusInternalServerError:
		// Tags may be immutable. The image can be used.
		out.Digest = descriptor.Digest.String()
		out.Message = fmt.Sprintf("the image exists, and the registry refused to record its use with status %d", code)
	default:
		return registryError("recording the use of", tag, err)
	}
	return nil
}

// setCreated returns a manifest with another time. All else is unchanged, also fields that are
// unknown here.
func setCreated(manifest []byte, now time.Time) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(manifest, &fields); err != nil {
		return nil, err
	}
	annotations := map[string]string{}
	if raw, found := fields["annotations"]; found {
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return nil, err
		}
	}
	if annotations == nil { // the field is null
		annotations = map[string]string{}
	}
	annotations[createdAnnotation] = now.UTC().Format(time.RFC3339)
	var err error
	if fields["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
