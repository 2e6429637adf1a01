package chart

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// nearestPerSide is the number of existing versions to list below, and above, a missing one.
const nearestPerSide = 2

// nearestVersions lists the existing versions next to a missing one, in ascending order. It is
// empty if wanted is not a semantic version.
func nearestVersions(wanted string, have []string) string {
	want, err := semver.NewVersion(wanted)
	if err != nil || len(have) == 0 {
		return ""
	}
	var known []*semver.Version
	for _, s := range have {
		if v, err := semver.NewVersion(s); err == nil && len(s) <= maxVersionLength {
			known = append(known, v)
		}
	}
	slices.SortFunc(known, func(a, b *semver.Version) int { return a.Compare(b) })
	at, _ := slices.BinarySearchFunc(known, want, func(v, w *semver.Version) int { return v.Compare(w) })
	var names []string
	for _, v := range known[max(0, at-nearestPerSide):min(len(known), at+nearestPerSide)] {
		names = append(names, v.Original())
	}
	return strings.Join(slices.Compact(names), ", ")
}

// maxVersionLength is the maximum length of a version to list in a message: repositories are not
// trusted.
const maxVersionLength = 128

// nearestHint ends the message about a missing version.
func nearestHint(wanted string, have []string) string {
	if names := nearestVersions(wanted, have); names != "" {
		return "; nearest versions: " + names
	}
	return ""
}
