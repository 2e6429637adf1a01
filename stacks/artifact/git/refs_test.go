package git

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

func TestHeadErrorListsSimilarBranches(t *testing.T) {
	_, repo := newRepo(t)
	id := commit(t, repo, map[string]string{"a": "a"})
	for _, b := range []string{"production", "prod-eu", "prod-us", "Prod-Eu2", "a-long-story"} {
		if err := repo.SetBranch(t.Context(), b, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.SetTag(t.Context(), "prod-e", id); err != nil {
		t.Fatal(err)
	}
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Head("prod-e")
	if got := reasonOf(t, err); got != BranchNotFound {
		t.Fatalf("reason %q, want %q: %v", got, BranchNotFound, err)
	}
	for _, want := range []string{`no branch "prod-e"`, `"prod-eu"`, `"prod-us"`, `"Prod-Eu2"`, `"main"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "a-long-story") {
		t.Errorf("%v contains a name that is not similar", err)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"main", "mian", 2}, {"main", "mai", 1}, {"kitten", "sitting", 3},
		{"same", "same", 0}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestListFailures(t *testing.T) {
	s, repo := newRepo(t)
	_, private := newRepo(t, gitserver.WithBasicAuth("user", "hunter2"))
	with := func(url, login string) string { return strings.Replace(url, "http://", "http://"+login+"@", 1) }
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/metadata"):
			http.Redirect(w, r, "http://169.254.169.254/info/refs", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/elsewhere"):
			http.Redirect(w, r, "/login", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/denied"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/broken"):
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer web.Close()

	for name, c := range map[string]struct {
		url  string
		want Reason
	}{
		"empty":               {repo.URL(), RepositoryEmpty},
		"unknown repository":  {s.URL() + "/team/nothing.git", RepositoryNotFound},
		"login needed":        {private.URL(), AuthenticationRequired},
		"login refused":       {with(private.URL(), "user:wrongpassword"), AuthenticationFailed},
		"access denied":       {web.URL + "/denied", AuthenticationFailed},
		"nothing listens":     {"http://127.0.0.1:1/x.git", OperationFailed},
		"no such host":        {"http://nothing.invalid/x.git", OperationFailed},
		"a web site":          {web.URL + "/x", OperationFailed},
		"bad gateway":         {web.URL + "/broken", OperationFailed},
		"link-local address":  {"http://169.254.169.254/x.git", URLInvalid},
		"link-local redirect": {web.URL + "/metadata", URLInvalid},
		"redirect to a page":  {web.URL + "/elsewhere", OperationFailed},
		"ssh without a key":   {"ssh://git@example.com/x.git", AuthenticationRequired},
		"another scheme":      {"git://example.com/x.git", URLInvalid},
		"a file":              {"file:///tmp/x.git", URLInvalid},
		"nonsense":            {"::", URLInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClient(t, Options{}).List(t.Context(), Repository{URL: c.url})
			if got := reasonOf(t, err); got != c.want {
				t.Errorf("reason %q, want %q: %v", got, c.want, err)
			}
			if strings.Contains(fmt.Sprint(err), "wrongpassword") {
				t.Errorf("the error contains the password: %v", err)
			}
		})
	}
}

func TestListRejectsSHA256Repository(t *testing.T) {
	s, repo := newRepo(t)
	dir := t.TempDir()
	steps := [][]string{
		{"init", "--quiet", "--object-format=sha256", "--initial-branch=main", dir},
		{"-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "commit", "--quiet", "--allow-empty", "-m", "x"},
		{"clone", "--quiet", "--bare", dir, repo.Dir() + "256.git"},
	}
	for _, args := range steps {
		if _, err := s.Git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	_, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL() + "256.git"})
	if got := reasonOf(t, err); got != Unsupported {
		t.Errorf("reason %q, want %q: %v", got, Unsupported, err)
	}
}

// redirectingServer starts a server that redirects all requests to the host of target. It
// returns the URL of a repository on the started server, with credentials for that server.
func redirectingServer(t *testing.T, target string) string {
	t.Helper()
	hop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "hunter2" {
			t.Error("the redirecting server got no credentials")
		}
		http.Redirect(w, r, target+r.URL.RequestURI(), http.StatusFound)
	}))
	t.Cleanup(hop.Close)
	return strings.Replace(hop.URL, "http://127.0.0.1", "http://user:hunter2@localhost", 1) + "/team/fleet.git"
}

func TestListDropsCredentialsOnRedirectToOtherHost(t *testing.T) {
	_, repo := newRepo(t, gitserver.WithBasicAuth("user", "hunter2"))
	commit(t, repo, map[string]string{"a": "a"})
	// The target accepts the same password, but the password is only for the first host.
	_, err := newClient(t, Options{}).
		List(t.Context(), Repository{URL: redirectingServer(t, strings.TrimSuffix(repo.URL(), "/team/fleet.git"))})
	if got := reasonOf(t, err); got != AuthenticationFailed {
		t.Errorf("reason %q: %v", got, err)
	}
}

func TestFetchDropsCredentialsOnRedirectToOtherHost(t *testing.T) {
	id := strings.Repeat("1", 40)
	posted := 0
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization"); auth != "" {
			t.Errorf("%s with %q", r.Method, auth)
		}
		if r.Method == http.MethodPost {
			posted++
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write([]byte(advertisement(plumbing.NewHash(id), "")))
	}))
	defer evil.Close()
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: redirectingServer(t, evil.URL)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fetch(t.Context(), id); reasonOf(t, err) != OperationFailed || posted != 1 {
		t.Errorf("posted %d times: %v", posted, err)
	}
}

func TestListReturnsContextError(t *testing.T) {
	entered := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	_, err := newClient(t, Options{}).List(ctx, Repository{URL: web.URL + "/x.git"})
	if got := reasonOf(t, err); got != OperationFailed || !errors.Is(err, context.Canceled) {
		t.Errorf("reason %q: %v", got, err)
	}
}
