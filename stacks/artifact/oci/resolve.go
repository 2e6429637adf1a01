package oci

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/ksctl/gitops/stacks/artifact"
)

// DefaultTag is taken where a reference names nothing.
const DefaultTag = "latest"

// longestTag is what the specification allows a tag to have.
const longestTag = 128

// Ref selects an artifact of a repository: by digest, else by a range of
// versions, else by tag.
type Ref struct {
	Tag, SemVer, Digest string
}

// Target is an artifact that a reference leads to.
type Target struct {
	// Tag that leads to it; empty when it was asked for by digest.
	Tag string
	// Digest of its manifest, as sha256:<hex>.
	Digest string
}

// Revision is what people call the artifact, as Flux writes it.
func (t Target) Revision() string {
	if t.Tag == "" {
		return t.Digest
	}
	return t.Tag + "@" + t.Digest
}

// Resolve finds what a reference leads to. A digest costs no request, a tag one
// beside those to log in, a range one more for each page of tags. The error is
// an *Error.
func (r *Repository) Resolve(ctx context.Context, ref Ref) (Target, error) {
	if ref.Digest != "" {
		if _, err := artifact.ParseDigest(ref.Digest); err != nil {
			return Target{}, failBy(Unsupported, err, "ref.digest")
		}
		return Target{Digest: ref.Digest}, nil
	}
	tag := ref.Tag
	if ref.SemVer != "" {
		var err error
		if tag, err = r.newest(ctx, ref.SemVer); err != nil {
			return Target{}, err
		}
	}
	if tag == "" {
		tag = DefaultTag
	}
	digest, err := r.digestOf(ctx, tag)
	return Target{Tag: tag, Digest: digest}, err
}

// digestOf asks what a tag leads to, and no more than that of a registry that
// can say it shortly.
func (r *Repository) digestOf(ctx context.Context, tag string) (string, error) {
	d, err := r.puller.Head(ctx, r.name.Tag(tag))
	if err == nil {
		return r.ofSHA256(d.Digest.String(), tag)
	}
	if unsaid(err) {
		m, err := r.Tagged(ctx, tag)
		return m.Digest, err
	}
	return "", r.judge(ctx, err, r.name.Tag(tag).String())
}

// unsaid is true when the registry answered, but not with what was asked for:
// some can't say a digest without the manifest.
func unsaid(err error) bool {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return answer.StatusCode == http.StatusMethodNotAllowed
	}
	_, network := errors.AsType[*url.Error](err)
	return !network
}

func (r *Repository) ofSHA256(digest, tag string) (string, error) {
	if _, err := artifact.ParseDigest(digest); err != nil {
		return "", failBy(Unsupported, err, "%s", r.name.Tag(tag))
	}
	return digest, nil
}

// newest gives the tag with the highest version in a range. Tags that are no
// semantic version, with or without a leading v, are passed over. Of tags that
// differ in the v alone the last by name is taken.
func (r *Repository) newest(ctx context.Context, inRange string) (string, error) {
	want, err := semver.NewConstraint(inRange)
	if err != nil {
		return "", failBy(SemVerInvalid, err, "%.80q is not a range of versions, such as \">=1.2.0 <2.0.0\"", inRange)
	}
	var best, highest candidate
	lister, err := r.puller.Lister(ctx, r.name)
	if err != nil {
		return "", r.judge(ctx, err, r.String())
	}
	for lister.HasNext() {
		page, err := lister.Next(ctx)
		if err != nil {
			return "", r.judge(ctx, err, "the tags of "+r.String())
		}
		for _, tag := range page.Tags {
			c := candidate{tag: tag, version: versionOf(tag)}
			if c.version == nil {
				continue
			}
			highest = highest.or(c)
			if want.Check(c.version) {
				best = best.or(c)
			}
		}
	}
	switch {
	case best.version != nil:
		return best.tag, nil
	case highest.version != nil:
		return "", fail(TagNotFound, "no tag of %s is in the range %.80q; the highest version is %.80q: push a tag, or widen the range "+
			"(prereleases count only where the range names one)", r, inRange, highest.tag)
	}
	return "", fail(TagNotFound, "%s has no tag that is a version, such as v1.2.3: push one", r)
}

type candidate struct {
	tag     string
	version *semver.Version
}

// or is the one with the higher version.
func (c candidate) or(d candidate) candidate {
	if c.version == nil {
		return d
	}
	if by := d.version.Compare(c.version); by > 0 || (by == 0 && d.tag > c.tag) {
		return d
	}
	return c
}

// versionOf is nil for a tag that is no version: with all three numbers, and
// without leading zeros.
func versionOf(tag string) *semver.Version {
	if len(tag) > longestTag {
		return nil
	}
	v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
	if err != nil {
		return nil
	}
	return v
}

// temporary is true for what another request may mend. What took too long is
// not asked for again: whoever waits has only that much time.
func temporary(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return answer.Temporary()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
