package chart

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// nearby is how many versions are named on either side of one that there is not.
const nearby = 2

// nearest names the versions next to one that there is not, in their order.
func nearest(wanted string, have []string) string {
	want, err := semver.NewVersion(wanted)
	if err != nil || len(have) == 0 {
		return ""
	}
	var known []*semver.Version
	for _, s := range have {
		if v, err := semver.NewVersion(s); err == nil && len(s) <= maxVersion {
			known = append(known, v)
		}
	}
	slices.SortFunc(known, func(a, b *semver.Version) int { return a.Compare(b) })
	at, _ := slices.BinarySearchFunc(known, want, func(v, w *semver.Version) int { return v.Compare(w) })
	var names []string
	for _, v := range known[max(0, at-nearby):min(len(known), at+nearby)] {
		names = append(names, v.Original())
	}
	return strings.Join(slices.Compact(names), ", ")
}

// maxVersion bounds a version that a repository names, for messages.
const maxVersion = 128

// withNearest is the end of a message about a version that there is not.
func withNearest(wanted string, have []string) string {
	if names := nearest(wanted, have); names != "" {
		return "; the nearest that it has: " + names
	}
	return ""
}
