package git

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Head gives the commit that a branch points to.
func (r *Remote) Head(branch string) (string, error) {
	if h, ok := r.refs[branchSpace+branch]; ok && !h.IsZero() {
		return h.String(), nil
	}
	near := nearest(branch, r.branches())
	if d := r.defaultBranch(); d != "" && !slices.Contains(near, d) {
		near = append(near, d)
	}
	return "", r.missing(BranchNotFound, "branch", branch, near)
}

// missing says that there is no such branch or tag, and what there is instead.
func (r *Remote) missing(reason Reason, kind, name string, near []string) error {
	message := "the repository at " + r.masked + " has no " + kind + " " + quoted(name)
	if len(near) > 0 {
		for i := range near {
			near[i] = quoted(near[i])
		}
		message += "; there is " + strings.Join(near, ", ")
	}
	return fail(reason, "%s", message)
}

func (r *Remote) branches() []string { return r.names(branchSpace) }

// names are those of all branches, or of all tags.
func (r *Remote) names(space string) []string {
	var names []string
	for ref := range r.refs {
		if name, ok := strings.CutPrefix(ref, space); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// defaultBranch is what HEAD of the repository names.
func (r *Remote) defaultBranch() string {
	for _, symref := range r.caps.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(symref, "HEAD:"+branchSpace); ok {
			return target
		}
	}
	return ""
}

// hasTip is true when a branch or a tag points to the commit: every server
// gives those out.
func (r *Remote) hasTip(h plumbing.Hash) bool {
	for _, tip := range r.refs {
		if tip == h {
			return true
		}
	}
	return false
}

// tips are the commits of all branches and tags.
func (r *Remote) tips() []plumbing.Hash {
	seen := map[plumbing.Hash]bool{}
	for ref, tip := range r.refs {
		if strings.HasPrefix(ref, branchSpace) || strings.HasPrefix(ref, tagSpace) {
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
	nearNames  = 3
	longestRef = 255
)

// quoted is a name of a branch or a tag, for a message.
func quoted(name string) string { return strconv.Quote(clip(name)) }

func clip(name string) string {
	if len(name) > longestRef {
		return name[:longestRef] + "…"
	}
	return name
}

// nearest are the names most like want, at most three, the likest first.
func nearest(want string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	for _, name := range names {
		// What differs much in length is not near, and need not be compared.
		if len(name) > longestRef || abs(len(name)-len(want)) > 3 {
			continue
		}
		if far := distance(strings.ToLower(want), strings.ToLower(name)); far <= 1+len(want)/3 {
			found = append(found, candidate{name, far})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.far - b.far })
	near := make([]string, 0, nearNames+1)
	for _, c := range found[:min(nearNames, len(found))] {
		near = append(near, c.name)
	}
	return near
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// distance is the number of bytes to insert, remove or replace between a and b.
func distance(a, b string) int {
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
