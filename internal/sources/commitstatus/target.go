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

// Target is the API endpoint for the statuses of a source.
type Target struct {
	kind appsv1.CommitStatusType
	// base is the URL of the repository's statuses, to which a commit is appended.
	base *url.URL
}

// TargetOf returns the target of a source with spec.commitStatus. The error means that the address
// is not the URL of a repository of the server's type.
func TargetOf(source *appsv1.KsctlSource) (Target, error) {
	address := source.Spec.CommitStatus.Address
	if address == "" && source.Spec.Git != nil {
		address = source.Spec.Git.URL
	}
	return newTarget(source.Spec.CommitStatus.Type, address)
}

// newTarget follows the documentation of the three server types:
//
//   - https://docs.github.com/en/rest/commits/statuses#create-a-commit-status, below
//     https://api.github.com, https://api.<name>.ghe.com and https://<host>/api/v3
//   - https://docs.gitlab.com/api/commits/#set-the-pipeline-status-of-a-commit
//   - https://docs.gitea.com/api/#tag/repository/operation/repoCreateStatus
func newTarget(kind appsv1.CommitStatusType, address string) (Target, error) {
	want := "https://<host>/<owner>/<repository>"
	if kind == appsv1.GitLabStatus {
		want = "https://<host>/<group>/<project>"
	}
	invalid := fmt.Errorf("%s is not the URL of a repository: expected %s", artifact.MaskURL(address), want)
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) {
		return Target{}, invalid
	}
	scheme, host := u.Scheme, u.Host
	if scheme == "ssh" { // the port of SSH is not the port of the API
		scheme, host = "https", (&url.URL{Host: u.Host}).Hostname()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	names := strings.Split(strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git"), "/")
	if len(names) < 2 || slices.ContainsFunc(names, func(n string) bool { return n == "" || n == "." || n == ".." }) {
		return Target{}, invalid
	}
	last := len(names) - 2
	var path string
	switch kind {
	case appsv1.GitHubStatus:
		if last != 0 {
			return Target{}, invalid
		}
		var prefix string
		host, prefix = gitHubAPI(strings.ToLower(host))
		path = prefix + "/repos/" + escapePath(names, "/")
	case appsv1.GitLabStatus:
		path = "/api/v4/projects/" + escapePath(names, "%2F")
	case appsv1.GiteaStatus: // Gitea may be served below a path
		path = "/api/v1/repos/" + escapePath(names[last:], "/")
		if last > 0 {
			path = "/" + escapePath(names[:last], "/") + path
		}
	default:
		return Target{}, invalid
	}
	base, err := url.Parse(scheme + "://" + host + path + "/statuses/")
	if err != nil {
		return Target{}, invalid
	}
	return Target{kind: kind, base: base}, nil
}

// gitHubAPI returns the host and the path prefix of the API of a GitHub server.
func gitHubAPI(host string) (apiHost, prefix string) {
	switch {
	case host == "github.com", host == "www.github.com", host == "ssh.github.com":
		return "api.github.com", ""
	case strings.HasSuffix(host, ".ghe.com"):
		return "api." + host, ""
	}
	return host, "/api/v3"
}

func escapePath(names []string, by string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = url.PathEscape(n)
	}
	return strings.Join(out, by)
}

// String returns the URL without the commit.
func (t Target) String() string { return t.base.Scheme + "://" + t.base.Host + t.base.EscapedPath() }

// payload is the body of a request. GitHub and Gitea use context, GitLab uses name instead.
type payload struct {
	State       string `json:"state"`
	Context     string `json:"context,omitempty"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description"`
}

// buildRequest returns the URL and the body of the request for a status.
func (t Target) buildRequest(s Status) (address string, body []byte, err error) {
	p := payload{State: t.apiState(s.State), Context: s.Context, Description: s.Description}
	if t.kind == appsv1.GitLabStatus {
		p.Context, p.Name = "", s.Context
	}
	body, err = json.Marshal(p)
	return t.String() + url.PathEscape(s.Commit), body, err
}

// apiState returns the state as the API of the server type names it.
func (t Target) apiState(s State) string {
	switch {
	case t.kind == appsv1.GitLabStatus && s == Failure:
		return "failed"
	case t.kind == appsv1.GitLabStatus && s == Canceled:
		return "canceled"
	case s == Canceled:
		return "error"
	}
	return string(s)
}

// setHeaders sets the headers for the API version and the token.
func (t Target) setHeaders(h http.Header, token string) {
	// Works for personal, project, group and OAuth tokens of GitLab, too:
	// https://docs.gitlab.com/api/rest/authentication/
	scheme := "Bearer "
	switch t.kind {
	case appsv1.GitHubStatus:
		h.Set("Accept", "application/vnd.github+json")
		h.Set("X-GitHub-Api-Version", "2022-11-28")
	case appsv1.GiteaStatus:
		scheme = "token "
	}
	h.Set("Authorization", scheme+token)
}

// RequiredPermissions describes the permissions that a token needs.
func (t Target) RequiredPermissions() string {
	switch t.kind {
	case appsv1.GitHubStatus:
		return "the permission \"Commit statuses: write\" for the " +
			"repository (for a classic token: the scope repo:status)"
	case appsv1.GitLabStatus:
		return "the scope api, and at least the role Developer in the project"
	default:
		return "the scope write:repository, and a user with write access to the repository"
	}
}
