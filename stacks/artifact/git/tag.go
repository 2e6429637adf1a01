package git

import (
	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Tag is a tag of a repository.
type Tag struct {
	Name string
	// Commit of the tag.
	Commit string
	// Object is the ID of the tag object if the tag is annotated; empty for a lightweight
	// tag.
	Object string
}

// Tag returns a tag by name.
func (r *Remote) Tag(name string) (Tag, error) {
	h := r.refs[tagPrefix+name]
	if h.IsZero() {
		return Tag{}, r.refNotFoundError(TagNotFound, "tag", name, similarNames(name, r.refNames(tagPrefix)))
	}
	return r.newTag(name, h), nil
}

func (r *Remote) newTag(name string, h plumbing.Hash) Tag {
	if commit, annotated := r.peeled[tagPrefix+name]; annotated {
		return Tag{Name: name, Commit: commit.String(), Object: h.String()}
	}
	return Tag{Name: name, Commit: h.String()}
}

// HighestTag returns the tag with the highest version in a range. It ignores tags that are not
// semantic versions, with or without a leading v. If tags differ only in the v or in the build
// metadata after a +, which do not affect the order of versions, it returns the last in lexical
// order.
func (r *Remote) HighestTag(versionRange string) (Tag, error) {
	constraint, err := semver.NewConstraint(versionRange)
	if err != nil {
		return Tag{}, wrapError(SemVerInvalid, err, "%.80q is not a version range, such as \">=1.2.0 <2.0.0\"",
			versionRange)
	}
	search := artifact.VersionSearch{Range: constraint}
	search.Add(r.refNames(tagPrefix))
	if name := search.InRange; name != "" {
		return r.newTag(name, r.refs[tagPrefix+name]), nil
	}
	if highest := search.Highest; highest != "" {
		return Tag{}, newError(TagNotFound, "no tag of the repository at %s is in the range %.80q; the highest "+
			"version is %.80q: push a tag, or widen the range "+
			"(prereleases count only where the range names one)", r.maskedURL, versionRange, highest)
	}
	return Tag{}, newError(TagNotFound, "the repository at %s has no tag that is a version, such as v1.2.3: push one",
		r.maskedURL)
}

// InRange is true for a tag that [Remote.HighestTag] can return for a range.
func InRange(tag, versionRange string) bool {
	constraint, err := semver.NewConstraint(versionRange)
	v := artifact.TagVersion(tag)
	return err == nil && v != nil && constraint.Check(v)
}
