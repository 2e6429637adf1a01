package source

import (
	"context"
	"fmt"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// leftOutKey is the metadata key of an artifact for the files that it does not contain.
const leftOutKey = "ksctl.com/left-out"

// desiredRef is the reference of a source in its repository. Exactly one field is set.
type desiredRef struct {
	branch, tag, semver, commit string
}

func desiredRefOf(ref *appsv1.GitRef) desiredRef {
	if ref == nil || *ref == (appsv1.GitRef{}) {
		return desiredRef{branch: git.DefaultBranch}
	}
	return desiredRef{branch: ref.Branch, tag: ref.Tag, semver: ref.SemVer, commit: ref.Commit}
}

// resolvedRef is the commit that a desiredRef resolves to.
type resolvedRef struct {
	// name is the name of the branch or tag; empty if the reference is a commit.
	name   string
	commit string
	// tag is set if the name is a tag.
	tag git.Tag
}

// resolve returns the commit of a reference, from the branches and tags of a repository.
func (w desiredRef) resolve(remote *git.Remote) (resolvedRef, error) {
	var tag git.Tag
	var err error
	switch {
	case w.commit != "":
		return resolvedRef{commit: w.commit}, nil
	case w.branch != "":
		commit, err := remote.Head(w.branch)
		return resolvedRef{name: w.branch, commit: commit}, err
	case w.tag != "":
		tag, err = remote.Tag(w.tag)
	default:
		tag, err = remote.HighestTag(w.semver)
	}
	return resolvedRef{name: tag.Name, commit: tag.Commit, tag: tag}, err
}

// revision returns the revision in the format of Flux.
func (c resolvedRef) revision() string {
	if c.name == "" {
		return "sha1:" + c.commit
	}
	return c.name + "@sha1:" + c.commit
}

// commitOf returns the commit of a revision. The name of a branch may contain an @.
func commitOf(revision string) string {
	_, commit, _ := strings.Cut(revision[strings.LastIndex(revision, "@")+1:], "sha1:")
	return commit
}

// isOfCommit reports whether an artifact was made from a commit. The name of the branch does not
// matter, because the files of a commit never change.
func isOfCommit(a *fluxmeta.Artifact, commit string) bool {
	return a != nil && commit != "" && commitOf(a.Revision) == commit
}

// doneMessage returns the message of a successful reconcile. It depends only on the status, so that
// nothing is written while this does not change.
func doneMessage(status *appsv1.KsctlSourceStatus) string {
	a := status.Artifact
	s := fmt.Sprintf("stored artifact for revision '%s'", a.Revision)
	if mode := status.SourceVerificationMode; mode != "" {
		s += fmt.Sprintf("; signature verified (%s)", mode)
	}
	if leftOut := a.Metadata[leftOutKey]; leftOut != "" {
		s += "; left out, because an artifact contains only regular files: " + leftOut
	}
	return s
}

// describeLeftOut lists files that could not be packed.
func describeLeftOut(count int, names []string) string {
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

// emitRefChange emits an event if the commit does not descend from that of the previous artifact: a
// tag was moved, or a branch rewritten. The new commit is used nevertheless.
func (f remoteCommit) emitRefChange(ctx context.Context, req *reconcile.Request[*appsv1.KsctlSource],
	before *fluxmeta.Artifact) {
	if before == nil || f.chosen.name == "" {
		return
	}
	old := commitOf(before.Revision)
	if old == "" || old == f.chosen.commit || !strings.HasPrefix(before.Revision, f.chosen.name+"@sha1:") {
		return // spec.git.ref has changed
	}
	if f.chosen.tag.Name != "" {
		req.Event(corev1.EventTypeWarning, appsv1.TagMovedReason,
			fmt.Sprintf("tag %.100q was moved from commit %s to %s", f.chosen.name, old, f.chosen.commit))
		return
	}
	// An error only suppresses the event.
	if rewritten, err := f.remote.HistoryRewritten(ctx, old, f.chosen.commit); err == nil && rewritten {
		req.Event(corev1.EventTypeWarning, appsv1.BranchRewrittenReason,
			fmt.Sprintf("branch %.100q was rewritten, for example by a force push: commit %s does not descend from %s",
				f.chosen.name, f.chosen.commit, old))
	}
}
