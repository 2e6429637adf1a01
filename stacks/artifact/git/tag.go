package git

import (
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"
)

// Tag is a tag of a repository.
type Tag struct {
	Name string
	// Commit that the tag leads to.
	Commit string
	// Object is the id of the tag itself, if it is annotated; empty for one that
	// is nothing but a name.
	Object string
}

// Tag gives a tag.
func (r *Remote) Tag(name string) (Tag, error) {
	h, ok := r.refs[tagSpace+name]
	if !ok || h.IsZero() {
		return Tag{}, r.missing(TagNotFound, "tag", name, nearest(name, r.names(tagSpace)))
	}
	return r.tag(name, h), nil
}

func (r *Remote) tag(name string, h plumbing.Hash) Tag {
	if commit, annotated := r.peeled[tagSpace+name]; annotated {
		return Tag{Name: name, Commit: commit.String(), Object: h.String()}
	}
	return Tag{Name: name, Commit: h.String()}
}

// Newest gives the tag with the highest version in a range. Tags that are no
// semantic version, with or without a leading v, are passed over. Of tags that
// differ only in the v or in what follows a +, which order no versions, the
// last by name is taken.
func (r *Remote) Newest(inRange string) (Tag, error) {
	want, err := semver.NewConstraint(inRange)
	if err != nil {
		return Tag{}, failBy(SemVerInvalid, err, "%.80q is not a range of versions, such as \">=1.2.0 <2.0.0\"", inRange)
	}
	var best, highest *semver.Version
	var name string
	for _, candidate := range r.names(tagSpace) {
		v := versionOf(candidate)
		if v == nil {
			continue
		}
		if highest == nil || v.GreaterThan(highest) {
			highest = v
		}
		if want.Check(v) && (best == nil || !v.LessThan(best)) {
			best, name = v, candidate
		}
	}
	switch {
	case best != nil:
		return r.tag(name, r.refs[tagSpace+name]), nil
	case highest != nil:
		return Tag{}, fail(TagNotFound, "no tag of the repository at %s is in the range %.80q; the highest version is %.80q: push a tag, or widen the range "+
			"(prereleases count only where the range names one)", r.masked, inRange, highest.Original())
	}
	return Tag{}, fail(TagNotFound, "the repository at %s has no tag that is a version, such as v1.2.3: push one", r.masked)
}

// InRange is true for a tag that [Remote.Newest] may choose for a range.
func InRange(tag, inRange string) bool {
	want, err := semver.NewConstraint(inRange)
	v := versionOf(tag)
	return err == nil && v != nil && want.Check(v)
}

// versionOf is nil for a tag that is no version: with all three numbers, and
// without leading zeros.
func versionOf(tag string) *semver.Version {
	if len(tag) > longestRef {
		return nil
	}
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v")); err != nil {
		return nil
	}
	v, err := semver.NewVersion(tag)
	if err != nil {
		return nil
	}
	return v
}
