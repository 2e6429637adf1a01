package commitstatus

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

// AddressError is an address that names no repository of a type.
type AddressError struct {
	// Address without what it holds of a user.
	Address string
	// Want is the form of one.
	Want string
}

// Error implements error.
func (e *AddressError) Error() string {
	return fmt.Sprintf("%s names no repository: want %s", e.Address, e.Want)
}

// Target is where statements of a source go.
type Target struct {
	kind appsv1.CommitStatusType
	// base of the API's paths for the repository, to which a commit is added.
	base *url.URL
}

// TargetOf is the target of a source that has a commit status. The error is an
// *AddressError.
func TargetOf(source *appsv1.KsctlSource) (Target, error) {
	address := source.Spec.CommitStatus.Address
	if address == "" && source.Spec.Git != nil {
		address = source.Spec.Git.URL
	}
	return newTarget(source.Spec.CommitStatus.Type, address)
}

// newTarget follows the documents of the three:
//
//   - https://docs.github.com/en/rest/commits/statuses#create-a-commit-status, below
//     https://api.github.com, https://api.<name>.ghe.com and https://<host>/api/v3
//   - https://docs.gitlab.com/api/commits/#set-the-pipeline-status-of-a-commit
//   - https://docs.gitea.com/api/#tag/repository/operation/repoCreateStatus
func newTarget(kind appsv1.CommitStatusType, address string) (Target, error) {
	want := map[appsv1.CommitStatusType]string{
		appsv1.GitHubStatus: "https://<host>/<owner>/<repository>",
		appsv1.GitLabStatus: "https://<host>/<group>/<project>",
		appsv1.GiteaStatus:  "https://<host>/<owner>/<repository>",
	}[kind]
	fail := &AddressError{Address: artifact.MaskURL(address), Want: want}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) {
		return Target{}, fail
	}
	scheme, host := u.Scheme, u.Host
	if scheme == "ssh" { // its port is not that of the API
		scheme, host = "https", (&url.URL{Host: u.Host}).Hostname()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	names := strings.Split(strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git"), "/")
	if len(names) < 2 || slices.ContainsFunc(names, func(n string) bool { return n == "" || n == "." || n == ".." }) {
		return Target{}, fail
	}
	last := len(names) - 2
	var path string
	switch kind {
	case appsv1.GitHubStatus:
		if last != 0 {
			return Target{}, fail
		}
		var prefix string
		host, prefix = gitHubAPI(strings.ToLower(host))
		path = prefix + "/repos/" + escaped(names, "/")
	case appsv1.GitLabStatus:
		path = "/api/v4/projects/" + escaped(names, "%2F")
	case appsv1.GiteaStatus: // it may live below a path
		path = "/api/v1/repos/" + escaped(names[last:], "/")
		if last > 0 {
			path = "/" + escaped(names[:last], "/") + path
		}
	default:
		return Target{}, fail
	}
	base, err := url.Parse(scheme + "://" + host + path + "/statuses/")
	if err != nil {
		return Target{}, fail
	}
	return Target{kind: kind, base: base}, nil
}

// gitHubAPI is where the API of a GitHub is.
func gitHubAPI(host string) (apiHost, prefix string) {
	switch {
	case host == "github.com", host == "www.github.com", host == "ssh.github.com":
		return "api.github.com", ""
	case strings.HasSuffix(host, ".ghe.com"):
		return "api." + host, ""
	}
	return host, "/api/v3"
}

func escaped(names []string, by string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = url.PathEscape(n)
	}
	return strings.Join(out, by)
}

// String is the address, without the commit.
func (t Target) String() string { return t.base.Scheme + "://" + t.base.Host + t.base.EscapedPath() }

// payload of GitHub and Gitea; GitLab calls the context name.
type payload struct {
	State       string `json:"state"`
	Context     string `json:"context,omitempty"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description"`
}

// request is where a statement goes, and what is sent.
func (t Target) request(s Statement) (address string, body []byte, err error) {
	p := payload{State: t.state(s.State), Context: s.Context, Description: s.Description}
	if t.kind == appsv1.GitLabStatus {
		p.Context, p.Name = "", s.Context
	}
	body, err = json.Marshal(p)
	return t.String() + url.PathEscape(s.Commit), body, err
}

// state in the words of the type.
func (t Target) state(s State) string {
	switch {
	case t.kind == appsv1.GitLabStatus && s == Failure:
		return "failed"
	case t.kind == appsv1.GitLabStatus && s == GivenUp:
		return "canceled"
	case s == GivenUp:
		return "error"
	}
	return string(s)
}

// authorize shows the token.
func (t Target) authorize(h http.Header, token string) {
	switch t.kind {
	case appsv1.GitHubStatus:
		h.Set("Accept", "application/vnd.github+json")
		h.Set("X-GitHub-Api-Version", "2022-11-28")
		h.Set("Authorization", "Bearer "+token)
	case appsv1.GitLabStatus:
		// Those of people, projects and groups, and of OAuth: https://docs.gitlab.com/api/rest/authentication/
		h.Set("Authorization", "Bearer "+token)
	default:
		h.Set("Authorization", "token "+token)
	}
}

// Rights that a token needs.
func (t Target) Rights() string {
	switch t.kind {
	case appsv1.GitHubStatus:
		return "the permission \"Commit statuses: write\" for the repository (of a classic token: the scope repo:status)"
	case appsv1.GitLabStatus:
		return "the scope api, and the role Developer in the project or one above"
	default:
		return "the scope write:repository, of a user who may write to the repository"
	}
}
