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

// push is a push as the sender describes it.
type push struct {
	// repositories are the URLs and paths of the repository, one for each distinct repositoryPath.
	// If it is empty, the push may be to any repository.
	repositories []string
	// ref is the full name of a branch or tag, such as refs/heads/main. Generic senders may send
	// the short name. If it is empty, the push may be to any ref.
	ref string
}

// errNoPush means that the request is an event other than a push.
var errNoPush = errors.New("not a push")

// payload contains the fields of bodies of all types. GitHub and Gitea send the URLs in repository;
// GitLab sends them in project, and more of them in repository.
type payload struct {
	Ref        string     `json:"ref"`
	Repository repository `json:"repository"`
	Project    project    `json:"project"`
	// ObjectKind and EventName are the kind of event in GitLab: EventName in system hooks,
	// ObjectKind in others.
	ObjectKind string `json:"object_kind"`
	EventName  string `json:"event_name"`
}

// repository is a JSON object, or a JSON string with a URL from generic senders.
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

// parse parses an authenticated request. It returns errNoPush for other events, which are not an
// error of the sender.
func parse(kind appsv1.WebhookType, header http.Header, body []byte) (push, error) {
	generic := kind == appsv1.GenericWebhook || kind == appsv1.GenericHMACWebhook
	switch {
	case kind == appsv1.GitHubWebhook && header.Get("X-GitHub-Event") != "push",
		kind == appsv1.GiteaWebhook && header.Get("X-Gitea-Event") != "push":
		return push{}, errNoPush
	case generic && len(bytes.TrimSpace(body)) == 0:
		return push{}, nil
	}
	body, err := jsonBody(kind, header, body)
	if err != nil {
		return push{}, err
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return push{}, fmt.Errorf("parsing the body as the JSON of a push: %w", err)
	}
	if kind == appsv1.GitLabWebhook && !isGitLabPush(p.ObjectKind) && !isGitLabPush(p.EventName) {
		return push{}, errNoPush
	}
	out := push{ref: p.Ref}
	for _, address := range []string{p.Repository.address, p.Repository.FullName, p.Repository.CloneURL,
		p.Repository.SSHURL, p.Repository.HTMLURL,
		p.Project.Path, p.Project.HTTPURL, p.Project.SSHURL, p.Project.WebURL} {
		path := repositoryPath(address)
		if path != "" && !slices.ContainsFunc(out.repositories, func(a string) bool {
			return repositoryPath(a) == path
		}) {
			out.repositories = append(out.repositories, address)
		}
	}
	if !generic && (len(out.repositories) == 0 || out.ref == "") {
		return push{}, errors.New("the body has no repository or no ref")
	}
	return out, nil
}

func isGitLabPush(kind string) bool { return kind == "push" || kind == "tag_push" }

// jsonBody returns the JSON in a body: GitHub may send it as a field of a form.
func jsonBody(kind appsv1.WebhookType, header http.Header, body []byte) ([]byte, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != appsv1.GitHubWebhook || media != "application/x-www-form-urlencoded" {
		return body, nil //nolint:nilerr // without a valid content type, parsing the body decides
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("parsing the body as a form: %w", err)
	}
	return []byte(form.Get("payload")), nil
}

// repositoryPath returns the path of a repository on its server. It is "team/fleet" for
// https://git.example.com/Team/fleet.git, git@git.example.com:team/fleet and team/fleet. The host
// is not compared: a server may have several names and ports, and a sender that knows the token is
// trusted to mean its own repositories.
func repositoryPath(address string) string {
	path := address
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		path = u.Path
	} else if host, rest, ok := strings.Cut(address, ":"); ok && !strings.Contains(host, "/") {
		path = rest
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(path, "/"), ".git"))
}
