package source

import (
	"fmt"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// leftOutKey is the metadata of an artifact that says what it could not hold.
const leftOutKey = "ksctl.com/left-out"

// wish is what a source wants of its repository: one of these.
type wish struct {
	branch, tag, semver, commit string
}

func wishOf(ref *appsv1.GitRef) wish {
	if ref == nil || *ref == (appsv1.GitRef{}) {
		return wish{branch: git.DefaultBranch}
	}
	return wish{branch: ref.Branch, tag: ref.Tag, semver: ref.SemVer, commit: ref.Commit}
}

// choice is the commit that was chosen for a wish.
type choice struct {
	// name of the branch or tag, if the wish is not for a commit.
	name   string
	commit string
	// tag is that of the name, if it is one.
	tag git.Tag
}

// choose finds the commit that is wished for in a list of branches and tags.
func (w wish) choose(remote *git.Remote) (choice, error) {
	var tag git.Tag
	var err error
	switch {
	case w.commit != "":
		return choice{commit: w.commit}, nil
	case w.branch != "":
		commit, err := remote.Head(w.branch)
		return choice{name: w.branch, commit: commit}, err
	case w.tag != "":
		tag, err = remote.Tag(w.tag)
	default:
		tag, err = remote.Newest(w.semver)
	}
	return choice{name: tag.Name, commit: tag.Commit, tag: tag}, err
}

// revision is what people call a commit of a branch or tag, as Flux writes it.
func (c choice) revision() string {
	if c.name == "" {
		return "sha1:" + c.commit
	}
	return c.name + "@sha1:" + c.commit
}

// commitOf is the commit that a revision names. A branch may contain an @.
func commitOf(revision string) string {
	_, commit, _ := strings.Cut(revision[strings.LastIndex(revision, "@")+1:], "sha1:")
	return commit
}

// holds is true when the artifact is of that commit, whatever the branch is
// called: the files of a commit never change.
func holds(a *fluxmeta.Artifact, commit string) bool {
	return a != nil && commit != "" && commitOf(a.Revision) == commit
}

// message of a source that is as it is wanted. It depends on its status only,
// so that nothing is written while that stays.
func message(status *appsv1.KsctlSourceStatus) string {
	a := status.Artifact
	s := fmt.Sprintf("stored artifact for revision '%s'", a.Revision)
	if mode := status.SourceVerificationMode; mode != "" {
		s += fmt.Sprintf(", whose signature was verified (%s)", mode)
	}
	if left := a.Metadata[leftOutKey]; left != "" {
		s += "; left out, because an artifact holds plain files only: " + left
	}
	return s
}

// leftOut describes files that could not be packed.
func leftOut(count int, names []string) string {
	if count == 0 {
		return ""
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%.100q", name)
	}
	s := strings.Join(quoted, ", ")
	if more := count - len(names); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
