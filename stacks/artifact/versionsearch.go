package artifact

import (
	"cmp"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// VersionSearch finds the highest versions among tags. It ignores tags that are not semantic
// versions. If tags differ only in the leading v or in the build metadata after a +, which do not
// affect the order of versions, it finds the last in lexical order.
type VersionSearch struct {
	Range *semver.Constraints
	// InRange is the tag with the highest version in the range, Highest the one with the highest
	// of all versions; empty if there is none.
	InRange, Highest string
}

// Add adds tags to the search.
func (s *VersionSearch) Add(tags []string) {
	for _, tag := range tags {
		v := TagVersion(tag)
		if v == nil {
			continue
		}
		s.Highest = higherVersion(s.Highest, tag)
		if s.Range.Check(v) {
			s.InRange = higherVersion(s.InRange, tag)
		}
	}
}

// higherVersion returns the tag with the higher version; a can be empty.
func higherVersion(a, b string) string {
	if a == "" || cmp.Or(TagVersion(b).Compare(TagVersion(a)), strings.Compare(b, a)) > 0 {
		return b
	}
	return a
}

// maxTagBytes is the maximum length of a tag that counts as a version.
const maxTagBytes = 255

// TagVersion parses a tag as a semantic version with all three numbers and without leading
// zeros, with or without a leading v. It returns nil for other tags.
func TagVersion(tag string) *semver.Version {
	if len(tag) > maxTagBytes {
		return nil
	}
	v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
	if err != nil {
		return nil
	}
	return v
}
