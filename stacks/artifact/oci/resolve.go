package oci

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"syscall"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/ksctl/gitops/stacks/artifact"
)

// DefaultTag is the tag of an empty reference.
const DefaultTag = "latest"

// maxTagLength is the maximum length of a tag in the OCI specification.
const maxTagLength = 128

// Ref selects an artifact of a repository: by digest if set, else by version range if set,
// else by tag.
type Ref struct {
	Tag, SemVer, Digest string
}

// ResolvedRef is the artifact that a reference resolves to.
type ResolvedRef struct {
	// Tag of the artifact; empty if the reference is a digest.
	Tag string
	// Digest of the manifest, as sha256:<hex>.
	Digest string
}

// Revision returns the human-readable revision of the artifact, in the format of Flux.
func (t ResolvedRef) Revision() string {
	if t.Tag == "" {
		return t.Digest
	}
	return t.Tag + "@" + t.Digest
}

// Resolve resolves a reference. A digest needs no request, a tag needs one in addition to
// those for authentication, and a version range needs one more per page of tags. The error
// is an *Error.
func (r *Repository) Resolve(ctx context.Context, ref Ref) (ResolvedRef, error) {
	if ref.Digest != "" {
		if _, err := artifact.ParseDigest(ref.Digest); err != nil {
			return ResolvedRef{}, wrapError(Unsupported, err, "ref.digest")
		}
		return ResolvedRef{Digest: ref.Digest}, nil
	}
	tag := cmp.Or(ref.Tag, DefaultTag)
	if ref.SemVer != "" {
		var err error
		if tag, err = r.highestTag(ctx, ref.SemVer); err != nil {
			return ResolvedRef{}, err
		}
	}
	digest, err := r.tagDigest(ctx, tag)
	return ResolvedRef{Tag: tag, Digest: digest}, err
}

// tagDigest returns the digest of a tag. It sends a HEAD request, and fetches the manifest
// only if the registry does not support that.
func (r *Repository) tagDigest(ctx context.Context, tag string) (string, error) {
	ref := r.name.Tag(tag)
	d, err := r.puller.Head(ctx, ref)
	if err == nil {
		return d.Digest.String(), requireSHA256(d.Digest, ref)
	}
	if headUnsupported(err) {
		m, err := r.ManifestByTag(ctx, tag)
		return m.Digest, err
	}
	return "", r.classifyError(ctx, err, ref.String())
}

// headUnsupported is true if the registry responded to a HEAD request without a digest: some
// registries return the digest only with the manifest.
func headUnsupported(err error) bool {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return answer.StatusCode == http.StatusMethodNotAllowed
	}
	_, network := errors.AsType[*url.Error](err)
	return !network
}

func requireSHA256(digest v1.Hash, ref name.Reference) error {
	if _, err := artifact.ParseDigest(digest.String()); err != nil {
		return wrapError(Unsupported, err, "%s", ref)
	}
	return nil
}

// highestTag returns the tag with the highest version in a range. It ignores tags that are not
// semantic versions, with or without a leading v. If two tags differ only in the v, it returns
// the last in lexical order.
func (r *Repository) highestTag(ctx context.Context, versionRange string) (string, error) {
	constraint, err := semver.NewConstraint(versionRange)
	if err != nil {
		return "", wrapError(SemVerInvalid, err, "%.80q is not a version range, such as \">=1.2.0 <2.0.0\"",
			versionRange)
	}
	search := artifact.VersionSearch{Range: constraint}
	lister, err := r.puller.Lister(ctx, r.name)
	if err != nil {
		return "", r.classifyError(ctx, err, r.String())
	}
	for lister.HasNext() {
		page, err := lister.Next(ctx)
		if err != nil {
			return "", r.classifyError(ctx, err, "the tags of "+r.String())
		}
		search.Add(slices.DeleteFunc(page.Tags, func(tag string) bool { return len(tag) > maxTagLength }))
	}
	if search.InRange != "" {
		return search.InRange, nil
	}
	if highest := search.Highest; highest != "" {
		return "", newError(TagNotFound, "no tag of %s is in the range %.80q; the highest version is %.80q: push a "+
			"tag, or widen the range "+
			"(prereleases count only where the range names one)", r, versionRange, highest)
	}
	return "", newError(TagNotFound, "%s has no tag that is a version, such as v1.2.3: push one", r)
}

// isTemporary is true if a retry may succeed. Requests that timed out are not retried: the
// caller has no time left.
func isTemporary(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return answer.Temporary()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}
