package git

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Head returns the commit of a branch.
func (r *Remote) Head(branch string) (string, error) {
	if h, ok := r.refs[branchPrefix+branch]; ok && !h.IsZero() {
		return h.String(), nil
	}
	similar := similarNames(branch, r.branches())
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

func (r *Remote) branches() []string { return r.refNames(branchPrefix) }

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
	for _, tip := range r.refs {
		if tip == h {
			return true
		}
	}
	return false
}

// tips returns the commits of all branches and tags.
func (r *Remote) tips() []plumbing.Hash {
	seen := map[plumbing.Hash]bool{}
	for ref, tip := range r.refs {
		if strings.HasPrefix(ref, branchPrefix) || strings.HasPrefix(ref, tagPrefix) {
			seen[tip] = true
		}
	}
	tips := make([]plumbing.Hash, 0, len(seen))
	for tip := range seen {
		tips = append(tips, tip)
	}
	plumbing.HashesSort(tips)
	return tips
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
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	for _, name := range names {
		// Names with very different lengths are not similar and need not be compared.
		if len(name) > maxRefLength || abs(len(name)-len(want)) > 3 {
			continue
		}
		if far := editDistance(strings.ToLower(want), strings.ToLower(name)); far <= 1+len(want)/3 {
			found = append(found, candidate{name, far})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.far - b.far })
	similar := make([]string, 0, maxSimilarNames+1)
	for _, c := range found[:min(maxSimilarNames, len(found))] {
		similar = append(similar, c.name)
	}
	return similar
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
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
