package webhook

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// affects reports whether a push can change the artifact of a source.
func affects(source *appsv1.KsctlSource, p push) bool {
	address, ref := trackedRef(&source.Spec)
	if len(p.repositories) > 0 && !slices.ContainsFunc(p.repositories, func(pushed string) bool {
		return sameRepository(address, pushed)
	}) {
		return false
	}
	if ref.Commit != "" { // any branch may bring it; once fetched it never changes
		a := source.Status.Artifact
		return a == nil || !strings.HasSuffix(a.Revision, ref.Commit)
	}
	branch, isBranch := strings.CutPrefix(p.ref, branchPrefix)
	tag, isTag := strings.CutPrefix(p.ref, tagPrefix)
	shortRef := !strings.HasPrefix(p.ref, "refs/")
	switch {
	case p.ref == "":
		return true
	case ref.Branch != "":
		return branch == ref.Branch && (isBranch || shortRef)
	case ref.Tag != "":
		return tag == ref.Tag && (isTag || shortRef)
	}
	return git.InRange(tag, ref.SemVer) && (isTag || shortRef)
}

// sameRepository reports whether a sender's name of a repository means the repository at the URL of
// a source. The name is a URL, a path, or host and path without a scheme as registries send it. In
// registry:5000/team/fleet, 5000 is a port and not the first element of a path.
func sameRepository(sourceURL, sent string) bool {
	u, err := url.Parse(sourceURL)
	if err != nil {
		return false
	}
	if u.Scheme == "oci" {
		sent, _, _ = strings.Cut(sent, "@") // a digest
		if slash, colon := strings.LastIndex(sent, "/"), strings.LastIndex(sent, ":"); slash >= 0 && colon > slash {
			sent = sent[:colon] // a tag
		}
	}
	path := repositoryPath(sourceURL)
	bare := strings.ToLower(strings.TrimSuffix(strings.Trim(sent, "/"), ".git"))
	return repositoryPath(sent) == path || bare == strings.ToLower(u.Host)+"/"+path ||
		bare == strings.ToLower(u.Hostname())+"/"+path
}

// describePush returns the repositories and the ref of a push for the log, without passwords in
// URLs.
func describePush(p push) string {
	var out []string
	for _, address := range p.repositories {
		if u, err := url.Parse(address); err == nil {
			address = u.Redacted()
		}
		out = append(out, address)
	}
	return fmt.Sprintf("%.300q", strings.Join(append(out, p.ref), " "))
}

// describeSource returns the repository and the ref of a source for the log, without user
// information in the URL.
func describeSource(source *appsv1.KsctlSource) string {
	address, ref := trackedRef(&source.Spec)
	return repositoryPath(address) + " " + cmp.Or(ref.Commit, ref.Branch, ref.Tag, ref.SemVer)
}

// trackedRef returns the URL and the ref that a source fetches. Exactly one field of the ref is
// set.
func trackedRef(spec *appsv1.KsctlSourceSpec) (address string, ref appsv1.GitRef) {
	if o := spec.OCI; o != nil {
		if o.Ref != nil {
			ref = appsv1.GitRef{Tag: o.Ref.Tag, SemVer: o.Ref.SemVer, Commit: o.Ref.Digest}
		}
		if ref == (appsv1.GitRef{}) {
			ref.Tag = oci.DefaultTag
		}
		return o.URL, ref
	}
	if spec.Git == nil { // the validation of the CRD prevents this
		return "", ref
	}
	if spec.Git.Ref != nil {
		ref = *spec.Git.Ref
	}
	if ref == (appsv1.GitRef{}) {
		ref.Branch = git.DefaultBranch
	}
	return spec.Git.URL, ref
}
