package git

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/stacks/artifact"
)

// newRepo serves a repository with git's own http-backend.
func newRepo(t *testing.T, options ...gitserver.Option) (*gitserver.Server, *gitserver.Repo) {
	t.Helper()
	return gitserver.ForTest(t, "team/fleet", options...)
}

func commit(t *testing.T, r *gitserver.Repo, files map[string]string, o ...gitserver.CommitOption) string {
	t.Helper()
	id, err := r.Commit(t.Context(), files, "change", o...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	o.TempDir = t.TempDir()
	t.Cleanup(func() {
		left, err := os.ReadDir(o.TempDir)
		if err != nil || len(left) > 0 {
			t.Errorf("temporary files left: %v %v", left, err)
		}
	})
	return NewClient(o)
}

// reasonOf returns the reason of an *Error, and fails the test for other errors.
func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *Error: %T %v", err, err)
	}
	return e.Reason
}

func listHead(t *testing.T, c *Client, url, branch string) (*Remote, string) {
	t.Helper()
	r, err := c.List(t.Context(), Repository{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.Head(branch)
	if err != nil {
		t.Fatal(err)
	}
	return r, id
}

func files(t testing.TB, fsys fs.FS) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := fs.ReadFile(fsys, path)
		got[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func fetchCheckout(t *testing.T, r *Remote, id string) *Checkout {
	t.Helper()
	c, err := r.Fetch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestFetchBranchHead(t *testing.T) {
	_, repo := newRepo(t)
	commit(t, repo, map[string]string{"old": "history"})
	// The files are similar, so that the pack contains deltas.
	body := strings.Repeat("the same line again and again\n", 400)
	want := map[string]string{"a/b/one.yaml": body + "1", "a/b/two.yaml": body + "2", "a/three.yaml": "3" + body,
		"empty": "", "run.sh": "#!/bin/sh\n"}
	plain := maps.Clone(want)
	delete(plain, "run.sh")
	id := commit(t, repo, plain, gitserver.Delete("old"), gitserver.Executable("run.sh", "#!/bin/sh\n"))

	client := newClient(t, Options{})
	r, got := listHead(t, client, repo.URL(), "main")
	if got != id {
		t.Fatalf("head of main is %s, want %s", got, id)
	}
	c := fetchCheckout(t, r, id)
	if got := files(t, c.FS()); !maps.Equal(got, want) {
		t.Errorf("got files %v", fileSizes(got))
	}
	if err := fstest.TestFS(c.FS(), "a/b/one.yaml", "a/three.yaml", "run.sh", "empty"); err != nil {
		t.Error(err)
	}
	if info, err := fs.Stat(c.FS(), "run.sh"); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("run.sh must be executable: %v %v", info, err)
	}
}

func fileSizes(m map[string]string) (out []string) {
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s (%d bytes)", k, len(v)))
	}
	return out
}

func TestFetchIsShallow(t *testing.T) {
	_, repo := newRepo(t)
	old := commit(t, repo, map[string]string{"a": "old"})
	id := commit(t, repo, map[string]string{"a": "new"})
	r, _ := listHead(t, newClient(t, Options{}), repo.URL(), "main")
	c := fetchCheckout(t, r, id)
	if n := len(c.store.objects); n != 3 {
		t.Errorf("%d objects, want a commit, a tree and a blob", n)
	}
	// A commit that no branch points to, from a server that serves it.
	c = fetchCheckout(t, r, old)
	if got := files(t, c.FS()); got["a"] != "old" {
		t.Errorf("got %v", got)
	}
}

func TestFetchFromServerWithoutSingleCommits(t *testing.T) {
	s, repo := newRepo(t)
	old := commit(t, repo, map[string]string{"a": "old"})
	commit(t, repo, map[string]string{"a": "new"})
	lost := commit(t, repo, map[string]string{"a": "lost"}, gitserver.OnBranch("gone"))
	if err := repo.DeleteBranch(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Git(t.Context(), repo.Dir(), "config", "uploadpack.allowAnySHA1InWant", "false"); err != nil {
		t.Fatal(err)
	}
	r, _ := listHead(t, newClient(t, Options{}), repo.URL(), "main")
	if got := files(t, fetchCheckout(t, r, old).FS()); got["a"] != "old" {
		t.Errorf("got %v", got)
	}
	_, err := r.Fetch(t.Context(), lost)
	if got := reasonOf(t, err); got != CommitNotFound {
		t.Errorf("reason %q, want %q: %v", got, CommitNotFound, err)
	}
}

func TestFetchUnknownCommit(t *testing.T) {
	_, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "a"})
	r, _ := listHead(t, newClient(t, Options{}), repo.URL(), "main")
	unknown := strings.Repeat("12345678", 5)
	_, err := r.Fetch(t.Context(), unknown)
	if got := reasonOf(t, err); got != CommitNotFound || !strings.Contains(err.Error(), unknown) {
		t.Errorf("reason %q, want %q: %v", got, CommitNotFound, err)
	}
	for _, odd := range []string{"", "main", strings.Repeat("1", 64), strings.Repeat("g", 40)} {
		if _, err := r.Fetch(t.Context(), odd); reasonOf(t, err) != Unsupported {
			t.Errorf("%q: %v", odd, err)
		}
	}
}

func TestFetchWithLogin(t *testing.T) {
	_, repo := newRepo(t, gitserver.WithBasicAuth("user", "hunter2"))
	id := commit(t, repo, map[string]string{"a": "a"})
	r, _ := listHead(t, newClient(t, Options{}), strings.Replace(repo.URL(), "http://", "http://user:hunter2@", 1),
		"main")
	if got := files(t, fetchCheckout(t, r, id).FS()); got["a"] != "a" {
		t.Errorf("got %v", got)
	}
}

func TestFetchAfterRedirect(t *testing.T) {
	_, repo := newRepo(t)
	id := commit(t, repo, map[string]string{"a": "a"})
	hop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s to the old address", r.Method)
		}
		http.Redirect(w, r, strings.Replace(repo.URL()+r.URL.RequestURI(), "/moved.git/", "/", 1),
			http.StatusMovedPermanently)
	}))
	defer hop.Close()
	r, _ := listHead(t, newClient(t, Options{}), hop.URL+"/moved.git", "main")
	if got := files(t, fetchCheckout(t, r, id).FS()); got["a"] != "a" {
		t.Errorf("got %v", got)
	}
}

func TestFetchEnforcesLimits(t *testing.T) {
	_, repo := newRepo(t)
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprintf("f%d", i)] = fmt.Sprint(i)
	}
	branches := map[string]map[string]string{
		"big":   {"big": strings.Repeat("x", 5000)},
		"bytes": {"1": strings.Repeat("1", 3000), "2": strings.Repeat("2", 3000), "3": strings.Repeat("3", 3000)},
		"many":  many,
		"deep":  {"1/2/3/4/5/6": "x"},
		"fine":  {"1/2/3/4": "x"},
	}
	for b, f := range branches {
		commit(t, repo, f, gitserver.OnBranch(b))
	}
	limits := Limits{Tree: artifact.Limits{FileBytes: 4096, UnpackedBytes: 8192, Files: 30, Depth: 4}}
	for _, c := range []struct {
		branch string
		change func(*Limits)
		want   artifact.Reason
	}{
		{"big", nil, artifact.TooLarge},
		{"bytes", nil, artifact.TooLarge},
		{"many", nil, artifact.TooManyFiles},
		{"deep", nil, artifact.TooDeep},
		{"fine", nil, ""},
		{"fine", func(l *Limits) { l.Objects = 5 }, artifact.TooManyFiles},
		{"bytes", func(l *Limits) { l.Tree.UnpackedBytes, l.ObjectBytes = 1<<20, 6000 }, artifact.TooLarge},
	} {
		l := limits
		if c.change != nil {
			c.change(&l)
		}
		r, id := listHead(t, newClient(t, Options{Limits: l}), repo.URL(), c.branch)
		got, err := r.Fetch(t.Context(), id)
		if err == nil {
			_ = got.Close()
		}
		if reason := reasonOf(t, err); reason != c.want {
			t.Errorf("%s: reason %q, want %q: %v", c.branch, reason, c.want, err)
		}
		var e *Error
		if errors.As(err, &e) && !e.Terminal() {
			t.Errorf("%s: must be terminal: a retry of the same commit can't succeed", c.branch)
		}
	}
	_, err := newClient(t, Options{Limits: Limits{RefBytes: 200}}).List(t.Context(), Repository{URL: repo.URL()})
	if got := reasonOf(t, err); got != Unsupported {
		t.Errorf("a long list: reason %q: %v", got, err)
	}
}

func TestSymlinksCannotBeOpened(t *testing.T) {
	_, repo := newRepo(t)
	id := commit(t, repo, map[string]string{"a": "a"}, gitserver.Symlink("link", "/etc/passwd"),
		gitserver.Symlink("dir/link", "../.."))
	r, _ := listHead(t, newClient(t, Options{}), repo.URL(), "main")
	c := fetchCheckout(t, r, id)
	if got := files(t, c.FS()); !maps.Equal(got, map[string]string{"a": "a"}) {
		t.Errorf("got %v", got)
	}
	for _, name := range []string{"link", "dir/link"} {
		if _, err := c.FS().Open(name); !errors.Is(err, errNotAFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.FS().Open("../a"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("../a: %v", err)
	}
}
