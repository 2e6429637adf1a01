package git

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/stacks/artifact"
)

func gitmodules(pairs ...string) string {
	s := ""
	for i := 0; i < len(pairs); i += 2 {
		s += fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n", pairs[i], pairs[i], pairs[i+1])
	}
	return s
}

// checkoutWithSubmodules checks out the branch main with its submodules.
func checkoutWithSubmodules(t *testing.T, repo Repository, l Limits) (*Checkout, error) {
	t.Helper()
	r, err := newClient(t, Options{Limits: l}).List(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.Head("main")
	if err != nil {
		t.Fatal(err)
	}
	c := fetchCheckout(t, r, id)
	return c, c.AddSubmodules(t.Context(), repo)
}

func newRepos(t *testing.T, s *gitserver.Server, names ...string) []*gitserver.Repo {
	t.Helper()
	var all []*gitserver.Repo
	for _, name := range names {
		r, err := s.NewRepo(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestAddSubmodules(t *testing.T) {
	s, repo := newRepo(t)
	repos := newRepos(t, s, "team/lib", "other/deep")
	deep := commit(t, repos[1], map[string]string{"d/e": "deep"})
	lib := commit(t, repos[0], map[string]string{"l": "lib", ".gitmodules": gitmodules("in/deep", repos[1].URL())},
		gitserver.Submodule("in/deep", deep))
	commit(t, repos[0], map[string]string{"l": "later"}) // the submodule is not at the tip of its branch
	commit(t, repo,
		map[string]string{"a": "a", ".gitmodules": gitmodules("libs/one", "../lib.git", "two", "../lib.git")},
		gitserver.Submodule("libs/one", lib), gitserver.Submodule("two", lib))
	c, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, c.FS())
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasSuffix(name, modulesFile) })
	want := map[string]string{"a": "a", "libs/one/l": "lib", "libs/one/in/deep/d/e": "deep", "two/l": "lib",
		"two/in/deep/d/e": "deep"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := fstest.TestFS(c.FS(), "libs/one/in/deep/d/e", "two/l"); err != nil {
		t.Error(err)
	}
	// The limits apply to all repositories together: 3 + 2 x 6 files and directories.
	for files, want := range map[int]Reason{40: "", 12: artifact.TooManyFiles} {
		if _, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()},
			Limits{Tree: artifact.Limits{Files: files}}); reasonOf(t, err) != want {
			t.Errorf("%d files: %v", files, err)
		}
	}
	for name, l := range map[string]Limits{
		"depth":   {Tree: artifact.Limits{Depth: 4}},
		"bytes":   {ObjectBytes: 1 << 20, Tree: artifact.Limits{UnpackedBytes: 150}},
		"objects": {Objects: 12},
	} {
		if _, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, l); err == nil ||
			!strings.Contains(err.Error(), "submodule") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddSubmodulesErrors(t *testing.T) {
	s, repo := newRepo(t)
	lib := newRepos(t, s, "lib")[0]
	id := commit(t, lib, map[string]string{"l": "lib"})
	at := gitserver.Submodule("sub", id)
	for name, c := range map[string]struct {
		modules string
		is      Reason
	}{
		"no .gitmodules":              {"", SubmoduleInvalid},
		"no entry":                    {gitmodules("other", lib.URL()), SubmoduleInvalid},
		"syntax error":                {"[submodule\n", SubmoduleInvalid},
		"large .gitmodules":           {strings.Repeat("#", maxModulesBytes+1), SubmoduleInvalid},
		"a file URL":                  {gitmodules("sub", "file:///etc"), SubmoduleInvalid},
		"a path":                      {gitmodules("sub", "/etc"), SubmoduleInvalid},
		"an option":                   {gitmodules("sub", "--upload-pack=x"), SubmoduleInvalid},
		"link-local":                  {gitmodules("sub", "http://169.254.169.254/x.git"), URLInvalid},
		"unknown repository":          {gitmodules("sub", "../nothing.git"), RepositoryNotFound},
		"relative URL above the root": {gitmodules("sub", "../../../../../lib.git"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			commit(t, repo, map[string]string{".gitmodules": c.modules}, at)
			_, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, Limits{})
			if got := reasonOf(t, err); got != c.is {
				t.Errorf("reason %q, want %q: %v", got, c.is, err)
			}
		})
	}
	commit(t, repo, map[string]string{".gitmodules": gitmodules("sub", "../../lib.git")},
		gitserver.Submodule("sub", strings.Repeat("1", 40)))
	if _, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, Limits{}); reasonOf(t, err) != CommitNotFound {
		t.Errorf("an unknown commit: %v", err)
	}
	all := []string{}
	options := []gitserver.CommitOption{}
	for i := range maxSubmodules + 1 {
		all = append(all, fmt.Sprint("s", i), "../../lib.git")
		options = append(options, gitserver.Submodule(fmt.Sprint("s", i), id))
	}
	commit(t, repo, map[string]string{".gitmodules": gitmodules(all...)}, append(options, gitserver.Delete("sub"))...)
	if _, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, Limits{}); reasonOf(t,
		err) != SubmoduleInvalid {
		t.Errorf("too many: %v", err)
	}
}

func TestAddSubmodulesBoundsNesting(t *testing.T) {
	s, repo := newRepo(t)
	names := []string{}
	for i := range maxNested + 1 {
		names = append(names, fmt.Sprint("n", i))
	}
	repos := newRepos(t, s, names...)
	id := commit(t, repos[0], map[string]string{"x": "x"})
	for _, r := range repos[1:] {
		id = commit(t, r, map[string]string{".gitmodules": gitmodules("sub", repos[0].URL()), "y": r.URL()},
			gitserver.Submodule("sub", id))
		repos[0] = r
	}
	commit(t, repo, map[string]string{".gitmodules": gitmodules("sub", repos[0].URL())}, gitserver.Submodule("sub", id))
	if _, err := checkoutWithSubmodules(t, Repository{URL: repo.URL()}, Limits{}); reasonOf(t,
		err) != SubmoduleInvalid || !strings.Contains(err.Error(), "nested more than") {
		t.Errorf("got %v", err)
	}
}

func TestAddSubmodulesSendsNoCredentialsToOtherServers(t *testing.T) {
	s, repo := newRepo(t, gitserver.WithBasicAuth("user", "hunter2-hunter2"))
	here := newRepos(t, s, "lib")[0]
	id := commit(t, here, map[string]string{"l": "lib"})
	// The other server accepts the same password, too.
	s2, _ := newRepo(t, gitserver.WithBasicAuth("user", "hunter2-hunter2"))
	there := newRepos(t, s2, "lib")[0]
	if other := commit(t, there, map[string]string{"l": "lib"}); other == "" {
		t.Fatal("no commit")
	}
	access := Access{Username: "user", Password: "hunter2-hunter2"}
	for url, want := range map[string]Reason{here.URL(): "", "../../lib.git": "", there.URL(): AuthenticationRequired} {
		commit(t, repo, map[string]string{".gitmodules": gitmodules("sub", url)}, gitserver.Submodule("sub", id))
		_, err := checkoutWithSubmodules(t, Repository{URL: repo.URL(), Access: access}, Limits{})
		if got := reasonOf(t, err); got != want {
			t.Errorf("%s: reason %q, want %q: %v", url, got, want, err)
		}
	}
}

func TestSubmoduleURL(t *testing.T) {
	for _, c := range []struct{ from, target, want string }{
		{"https://h/team/fleet.git", "../lib.git", "https://h/team/lib.git"},
		{"https://h/team/fleet.git", "./lib.git", "https://h/team/fleet.git/lib.git"},
		{"https://h/fleet.git?x#y", "../../../lib.git", "https://h/lib.git"},
		{"ssh://git@h:2222/team/fleet.git", "../lib.git", "ssh://git@h:2222/team/lib.git"},
		{"https://h/x", "git@github.com:team/lib.git", "ssh://git@github.com/team/lib.git"},
		{"https://h/x", "github.com:/team/lib.git", "ssh://github.com/team/lib.git"},
		{"https://h/x", "https://other/lib.git", "https://other/lib.git"},
		{"https://h/x", "ext::sh -c x", ""},
		{"https://h/x", "", ""},
		{"https://h/x", "//host/x", ""},
	} {
		u, err := submoduleURL(c.from, c.target)
		if (err == nil) != (c.want != "") || (err == nil && u.String() != c.want) {
			t.Errorf("%s from %s: %v %v, want %q", c.target, c.from, u, err, c.want)
		}
	}
}

func FuzzModules(f *testing.F) {
	f.Add(gitmodules("a", "../b.git", "c", "git@h:d"))
	f.Add("[submodule \"x\"]\npath=..\nurl=\"\\\n")
	f.Fuzz(func(t *testing.T, content string) {
		urls, err := parseSubmoduleURLs([]byte(content), modulesFile)
		if errors.Is(err, errPanic) {
			t.Fatalf("panicked: %v", err)
		}
		for _, target := range urls {
			u, err := submoduleURL("https://h/x.git", target)
			if err == nil && u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
				t.Fatalf("%q leads to %s", target, u)
			}
		}
	})
}
