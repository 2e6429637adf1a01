package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// push is what a sender says was pushed.
type push struct {
	// repositories are the addresses and paths that the repository goes by, one for
	// each that repositoryPath tells apart. Without any it may be each.
	repositories []string
	// ref is a branch or tag in full, as refs/heads/main. A generic sender may give
	// the name alone, or nothing: then it may be any.
	ref string
}

// errNoPush: the request tells of something else than a push.
var errNoPush = errors.New("no push")

// payload has what is used of the bodies of all types. GitHub and Gitea name
// addresses in repository; GitLab in project, and others in repository.
type payload struct {
	Ref        string     `json:"ref"`
	Repository repository `json:"repository"`
	Project    project    `json:"project"`
	// ObjectKind and EventName say what GitLab tells of; the latter in system hooks.
	ObjectKind string `json:"object_kind"`
	EventName  string `json:"event_name"`
}

// repository is an object, or for generic senders an address.
type repository struct {
	FullName string `json:"full_name"`
	CloneURL string `json:"clone_url"`
	SSHURL   string `json:"ssh_url"`
	HTMLURL  string `json:"html_url"`
	address  string
}

type project struct {
	Path    string `json:"path_with_namespace"`
	HTTPURL string `json:"git_http_url"`
	SSHURL  string `json:"git_ssh_url"`
	WebURL  string `json:"web_url"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *repository) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		return json.Unmarshal(b, &r.address)
	}
	type plain repository
	return json.Unmarshal(b, (*plain)(r))
}

// parse reads a request that is authentic. errNoPush is no fault of the sender.
func parse(kind appsv1.WebhookType, header http.Header, body []byte) (push, error) {
	generic := kind == appsv1.GenericWebhook || kind == appsv1.GenericHMACWebhook
	switch {
	case kind == appsv1.GitHubWebhook && header.Get("X-GitHub-Event") != "push",
		kind == appsv1.GiteaWebhook && header.Get("X-Gitea-Event") != "push":
		return push{}, errNoPush
	case generic && len(bytes.TrimSpace(body)) == 0:
		return push{}, nil
	}
	body, err := document(kind, header, body)
	if err != nil {
		return push{}, err
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return push{}, fmt.Errorf("the body is not the JSON of a push: %w", err)
	}
	if kind == appsv1.GitLabWebhook && !gitLabPush(p.ObjectKind) && !gitLabPush(p.EventName) {
		return push{}, errNoPush
	}
	out := push{ref: p.Ref}
	for _, address := range []string{p.Repository.address, p.Repository.FullName, p.Repository.CloneURL, p.Repository.SSHURL, p.Repository.HTMLURL,
		p.Project.Path, p.Project.HTTPURL, p.Project.SSHURL, p.Project.WebURL} {
		path := repositoryPath(address)
		if path != "" && !slices.ContainsFunc(out.repositories, func(a string) bool { return repositoryPath(a) == path }) {
			out.repositories = append(out.repositories, address)
		}
	}
	if !generic && (len(out.repositories) == 0 || out.ref == "") {
		return push{}, errors.New("the body names no repository, or no ref")
	}
	return out, nil
}

func gitLabPush(kind string) bool { return kind == "push" || kind == "tag_push" }

// document is the JSON of a body: GitHub may send it as a field of a form.
func document(kind appsv1.WebhookType, header http.Header, body []byte) ([]byte, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != appsv1.GitHubWebhook || media != "application/x-www-form-urlencoded" {
		return body, nil //nolint:nilerr // what the body is shows when it is read
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("the body is no form: %w", err)
	}
	return []byte(form.Get("payload")), nil
}

// repositoryPath is what a repository is called on its server: of
// https://git.example.com/Team/fleet.git, git@git.example.com:team/fleet and
// team/fleet alike "team/fleet". Servers go by several names and ports, and one
// that has the token is believed to speak of its own.
func repositoryPath(address string) string {
	path := address
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		path = u.Path
	} else if host, rest, ok := strings.Cut(address, ":"); ok && !strings.Contains(host, "/") {
		path = rest
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(path, "/"), ".git"))
}
