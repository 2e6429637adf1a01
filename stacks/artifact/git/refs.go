package git

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Head returns the commit of a branch.
func (r *Remote) Head(branch string) (string, error) {
	if tip := r.branchTip(branch); tip != "" {
		return tip, nil
	}
	similar := similarNames(branch, r.refNames(branchPrefix))
	if d := r.defaultBranch(); d != "" && !slices.Contains(similar, d) {
		similar = append(similar, d)
	}
	return "", r.refNotFoundError(BranchNotFound, "branch", branch, similar)
}

// refNotFoundError reports a missing branch or tag, and lists similar names.
func (r *Remote) refNotFoundError(reason Reason, kind, name string, similar []string) error {
	message := "the repository at " + r.maskedURL + " has no " + kind + " " + quoteName(name)
	if len(similar) > 0 {
		for i := range similar {
			similar[i] = quoteName(similar[i])
		}
		message += "; there is " + strings.Join(similar, ", ")
	}
	return newError(reason, "%s", message)
}

// refNames returns the sorted names of all branches or all tags.
func (r *Remote) refNames(prefix string) []string {
	var names []string
	for ref := range r.refs {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// defaultBranch returns the branch of the repository's HEAD, and an empty string if it is unknown.
func (r *Remote) defaultBranch() string {
	for _, symref := range r.capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(symref, "HEAD:"+branchPrefix); ok {
			return target
		}
	}
	return ""
}

// hasTip is true if a branch or a tag points to the commit. Every server serves such commits.
func (r *Remote) hasTip(h plumbing.Hash) bool {
	return slices.Contains(slices.Collect(maps.Values(r.refs)), h)
}

// tips returns the commits of all branches and tags.
func (r *Remote) tips() []plumbing.Hash {
	var tips []plumbing.Hash
	for ref, tip := range r.refs {
		if strings.HasPrefix(ref, branchPrefix) || strings.HasPrefix(ref, tagPrefix) {
			tips = append(tips, tip)
		}
	}
	plumbing.HashesSort(tips)
	return slices.Compact(tips)
}

const (
	maxSimilarNames = 3
	maxRefLength    = 255
)

// quoteName returns the name of a branch or tag for a message: quoted, and truncated to
// maxRefLength bytes.
func quoteName(name string) string { return strconv.Quote(truncate(name)) }

func truncate(name string) string {
	if len(name) > maxRefLength {
		return name[:maxRefLength] + "…"
	}
	return name
}

// similarNames returns the names that are most similar to want, at most three, the most similar
// first.
func similarNames(want string, names []string) []string {
	var similar []string
	distances := map[string]int{}
	for _, name := range names {
		// Names with very different lengths are not similar and need not be compared.
		if len(name) > maxRefLength || max(len(name), len(want))-min(len(name), len(want)) > 3 {
			continue
		}
		if d := editDistance(strings.ToLower(want), strings.ToLower(name)); d <= 1+len(want)/3 {
			similar, distances[name] = append(similar, name), d
		}
	}
	slices.SortStableFunc(similar, func(a, b string) int { return distances[a] - distances[b] })
	return similar[:min(maxSimilarNames, len(similar))]
}

// editDistance returns the number of bytes to insert, remove or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
