package webhook

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	branches = "refs/heads/"
	tags     = "refs/tags/"
)

// wants is true when a push can change what a source takes.
func wants(source *appsv1.KsctlSource, p push) bool {
	address, ref := followed(&source.Spec)
	if len(p.repositories) > 0 && !slices.ContainsFunc(p.repositories, func(told string) bool { return same(address, told) }) {
		return false
	}
	if ref.Commit != "" { // it may come with any branch, and stays once it is there
		a := source.Status.Artifact
		return a == nil || !strings.HasSuffix(a.Revision, ref.Commit)
	}
	branch, isBranch := strings.CutPrefix(p.ref, branches)
	tag, isTag := strings.CutPrefix(p.ref, tags)
	bare := !strings.HasPrefix(p.ref, "refs/")
	switch {
	case p.ref == "":
		return true
	case ref.Branch != "":
		return branch == ref.Branch && (isBranch || bare)
	case ref.Tag != "":
		return tag == ref.Tag && (isTag || bare)
	}
	return git.InRange(tag, ref.SemVer) && (isTag || bare)
}

// same is true when the repository at a source's URL is called so by a sender: by
// its path, or by host and path without a scheme, as registries are used to. What
// follows is then no path on a host called registry: registry:5000/team/fleet.
func same(own, told string) bool {
	u, err := url.Parse(own)
	if err != nil {
		return false
	}
	if u.Scheme == "oci" {
		told, _, _ = strings.Cut(told, "@") // a digest
		if slash, colon := strings.LastIndex(told, "/"), strings.LastIndex(told, ":"); slash >= 0 && colon > slash {
			told = told[:colon] // a tag
		}
	}
	path := repositoryPath(own)
	bare := strings.ToLower(strings.TrimSuffix(strings.Trim(told, "/"), ".git"))
	return repositoryPath(told) == path || bare == strings.ToLower(u.Host)+"/"+path || bare == strings.ToLower(u.Hostname())+"/"+path
}

// tells is what a sender told of, for the log: without a password in an address.
func tells(p push) string {
	var out []string
	for _, address := range p.repositories {
		if u, err := url.Parse(address); err == nil {
			address = u.Redacted()
		}
		out = append(out, address)
	}
	return fmt.Sprintf("%.300q", strings.Join(append(out, p.ref), " "))
}

// takes is what a source takes, for the log: without what its URL may hold of a user.
func takes(source *appsv1.KsctlSource) string {
	address, ref := followed(&source.Spec)
	for _, name := range []string{ref.Commit, ref.Branch, ref.Tag, ref.SemVer} {
		if name != "" {
			return repositoryPath(address) + " " + name
		}
	}
	return repositoryPath(address)
}

// followed is where a source fetches from, and what: exactly one field is set.
func followed(spec *appsv1.KsctlSourceSpec) (address string, ref appsv1.GitRef) {
	if o := spec.OCI; o != nil {
		if o.Ref != nil {
			ref = appsv1.GitRef{Tag: o.Ref.Tag, SemVer: o.Ref.SemVer, Commit: o.Ref.Digest}
		}
		if ref == (appsv1.GitRef{}) {
			ref.Tag = oci.DefaultTag
		}
		return o.URL, ref
	}
	if spec.Git == nil { // the API server lets none of these through
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
