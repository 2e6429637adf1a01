package git

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

var commitTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func testCommit(files map[string][]byte) Commit {
	return Commit{Files: files, Message: "Export\n\nall of it\n", Name: "Robot", Email: "robot@example.com",
		When: commitTime}
}

// push pushes changed files to a branch.
func push(t *testing.T, repo Repository, branch string, files map[string][]byte) (string, error) {
	t.Helper()
	b, err := newClient(t, Options{}).Branch(t.Context(), repo, branch)
	if err != nil {
		return "", err
	}
	return pushOn(t, b, files)
}

func pushOn(t *testing.T, b *Branch, files map[string][]byte) (string, error) {
	t.Helper()
	on, err := b.Checkout(t.Context())
	if err != nil {
		return "", err
	}
	defer func() {
		if err := on.Close(); err != nil {
			t.Error(err)
		}
	}()
	return b.Push(t.Context(), on, testCommit(files))
}

func branchHead(t *testing.T, repo *gitserver.Repo, branch string) string {
	t.Helper()
	id, err := repo.Head(t.Context(), branch)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// expectBranchFiles checks with git that a branch has exactly the files.
func expectBranchFiles(t *testing.T, s *gitserver.Server, repo *gitserver.Repo, branch string, want map[string]string) {
	t.Helper()
	out, err := s.Git(t.Context(), repo.Dir(), "ls-tree", "-r", "--name-only", branch)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name := range strings.SplitSeq(out, "\n") {
		if name == "" {
			continue
		}
		if got[name], err = s.Git(t.Context(), repo.Dir(), "cat-file", "blob", branch+":"+name); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("branch %s has %v, want %v", branch, got, want)
	}
	if output, err := s.Git(t.Context(), repo.Dir(), "fsck", "--strict", "--no-dangling"); err != nil ||
		strings.Contains(output, "error") {
		t.Errorf("git fsck failed: %s %v", output, err)
	}
}

func TestPushCreatesAndUpdatesBranches(t *testing.T) {
	s, repo := newRepo(t)
	at := Repository{URL: repo.URL()}
	first, err := push(t, at, "main",
		map[string][]byte{"states/a.json": []byte("a"), "states/deep/er/b.json": []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	if got := branchHead(t, repo, "main"); got != first {
		t.Errorf("main is at %s, want %s", got, first)
	}
	expectBranchFiles(t, s, repo, "main", map[string]string{"states/a.json": "a", "states/deep/er/b.json": "b"})

	// Other files are kept, also with names that sort between those of the pushed files.
	commit(t, repo, map[string]string{"states.txt": "x", "states-2": "x", "README": "x"},
		gitserver.Executable("states/a.json", "a"))
	second, err := push(t, at, "main", map[string][]byte{"states/a.json": []byte("a2"), "states/deep/er/b.json": nil,
		"states/c.json": []byte("c"), "states/gone": nil})
	if err != nil {
		t.Fatal(err)
	}
	expectBranchFiles(t, s, repo, "main",
		map[string]string{"states/a.json": "a2", "states/c.json": "c", "states.txt": "x", "states-2": "x",
			"README": "x"})
	output, err := s.Git(t.Context(), repo.Dir(), "log", "-1", "--format=%an <%ae> %cn <%ce> %at%n%B", "main")
	if err != nil ||
		output != fmt.Sprintf("Robot <robot@example.com> Robot <robot@example.com> %d\nExport\n\nall of it\n",
			commitTime.Unix()) {
		t.Errorf("got %q, %v", output, err)
	}
	if mode, err := s.Git(t.Context(), repo.Dir(), "ls-tree", "main", "states/a.json"); err != nil ||
		!strings.HasPrefix(mode, "100755") {
		t.Errorf("the mode of a file is lost: %s", mode)
	}

	// A push without changes creates no commit.
	again, err := push(t, at, "main", map[string][]byte{"states/c.json": []byte("c"), "nowhere/x": nil})
	if err != nil || again != second || branchHead(t, repo, "main") != second {
		t.Errorf("got %s, %v, want %s", again, err, second)
	}

	// A new branch starts at the default branch.
	id, err := push(t, at, "states/prod", map[string][]byte{"d": []byte("d")})
	if err != nil || branchHead(t, repo, "states/prod") != id {
		t.Fatal(id, err)
	}
	if parent, err := s.Git(t.Context(), repo.Dir(), "rev-parse", "states/prod^"); err != nil || parent != second {
		t.Errorf("its parent is %s, want %s", parent, second)
	}
	expectBranchFiles(t, s, repo, "states/prod",
		map[string]string{"states/a.json": "a2", "states/c.json": "c", "states.txt": "x", "states-2": "x",
			"README": "x", "d": "d"})
}

func TestPushNeverForces(t *testing.T) {
	s, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "1"})
	client := newClient(t, Options{})
	b, err := client.Branch(t.Context(), Repository{URL: repo.URL()}, "main")
	if err != nil {
		t.Fatal(err)
	}
	theirs := commit(t, repo, map[string]string{"b": "theirs"})
	if _, err := pushOn(t, b, map[string][]byte{"c": []byte("ours")}); reasonOf(t, err) != BranchMoved {
		t.Fatalf("got %v", err)
	}
	if got := branchHead(t, repo, "main"); got != theirs {
		t.Errorf("main is at %s, want theirs, %s", got, theirs)
	}
	// If the branch moves between the check and the push, the server rejects the push.
	late, err := client.Branch(t.Context(), Repository{URL: repo.URL()}, "main")
	if err != nil {
		t.Fatal(err)
	}
	theirs = commit(t, repo, map[string]string{"b": "theirs again"}, gitserver.OnBranch("other"),
		gitserver.Onto(theirs))
	writeHook(t, repo, "update", "#!/bin/sh\ngit update-ref refs/heads/main "+theirs+"\n")
	if _, err := pushOn(t, late, map[string][]byte{"c": []byte("ours")}); reasonOf(t, err) != BranchMoved {
		t.Errorf("got %v", err)
	}
	if got := branchHead(t, repo, "main"); got != theirs {
		t.Errorf("main is at %s, want theirs, %s", got, theirs)
	}
	if err := os.Remove(filepath.Join(repo.Dir(), "hooks", "update")); err != nil {
		t.Fatal(err)
	}
	if _, err := push(t, Repository{URL: repo.URL()}, "main", map[string][]byte{"c": []byte("ours")}); err != nil {
		t.Fatal(err)
	}
	expectBranchFiles(t, s, repo, "main", map[string]string{"a": "1", "b": "theirs again", "c": "ours"})
}

func writeHook(t *testing.T, repo *gitserver.Repo, name, script string) {
	t.Helper()
	at := filepath.Join(repo.Dir(), "hooks")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestPushRejections(t *testing.T) {
	_, repo := newRepo(t, gitserver.WithBasicAuth("user", "hunter2-hunter2"))
	at := Repository{URL: repo.URL()}
	files := map[string][]byte{"a": []byte("a")}
	if _, err := push(t, at, "main", files); reasonOf(t, err) != AuthenticationRequired {
		t.Errorf("got %v", err)
	}
	at.Access = Access{Username: "user", Password: "hunter3-hunter3"}
	if _, err := push(t, at, "main", files); reasonOf(t, err) != AuthenticationFailed ||
		strings.Contains(err.Error(), "hunter3") {
		t.Errorf("got %v", err)
	}
	at.Access.Password = "hunter2-hunter2"
	if _, err := push(t, at, "main", files); err != nil {
		t.Fatal(err)
	}
	head := branchHead(t, repo, "main")
	writeHook(t, repo, "pre-receive", "#!/bin/sh\necho 'main is protected, hunter2-hunter2' >&2\nexit 1\n")
	_, err := push(t, at, "main", map[string][]byte{"a": []byte("b")})
	if reasonOf(t, err) != PushRefused || !strings.Contains(err.Error(), "main is protected") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if got := branchHead(t, repo, "main"); got != head {
		t.Errorf("main moved to %s", got)
	}
	for _, name := range []string{"", "a..b", "a.lock", "-x", "a b", "/a"} {
		if _, err := push(t, at, name, files); reasonOf(t, err) != BranchInvalid {
			t.Errorf("branch %q: got %v", name, err)
		}
	}
}

func TestPushToReadOnlyServer(t *testing.T) {
	s, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "1"})
	if _, err := s.Git(t.Context(), repo.Dir(), "config", "http.receivepack", "false"); err != nil {
		t.Fatal(err)
	}
	_, err := push(t, Repository{URL: repo.URL()}, "main", map[string][]byte{"a": []byte("a")})
	if reasonOf(t, err) != AuthenticationFailed || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
}

func TestPushRefusesRedirectToOtherHost(t *testing.T) {
	_, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "1"})
	hop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, repo.URL()+strings.TrimPrefix(r.URL.RequestURI(), "/moved.git"),
			http.StatusMovedPermanently)
	}))
	defer hop.Close()
	_, err := push(t, Repository{URL: hop.URL + "/moved.git", Access: Access{Username: "u", Password: "hunter2"}},
		"main", map[string][]byte{"a": []byte("2")})
	if reasonOf(t, err) != OperationFailed || !strings.Contains(err.Error(), "redirects to another host") {
		t.Errorf("got %v", err)
	}
	// A redirect within the host is followed, for example from a path without .git.
	backend, err := url.Parse(repo.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: backend.Scheme, Host: backend.Host})
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.RequestURI(), "/moved/"); ok {
			http.Redirect(w, r, backend.Path+"/"+rest, http.StatusMovedPermanently)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer here.Close()
	id, err := push(t, Repository{URL: here.URL + "/moved"}, "main", map[string][]byte{"a": []byte("2")})
	if err != nil || branchHead(t, repo, "main") != id {
		t.Errorf("got %s, %v", id, err)
	}
}

func TestPushOverSSH(t *testing.T) {
	s, repo := newRepo(t)
	key, err := gitserver.NewKey("")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.ServeSSH(key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	access, at := Access{Identity: key.Private, KnownHosts: []byte(d.KnownHosts())}, d.URL(repo)
	id, err := push(t, Repository{URL: at, Access: access}, "main", map[string][]byte{"a/b": []byte("1")})
	if err != nil || branchHead(t, repo, "main") != id {
		t.Fatal(id, err)
	}
	if _, err := push(t, Repository{URL: at, Access: access}, "main",
		map[string][]byte{"a/b": []byte("2")}); err != nil {
		t.Fatal(err)
	}
	expectBranchFiles(t, s, repo, "main", map[string]string{"a/b": "2"})
}

func TestPushRejectsInvalidPaths(t *testing.T) {
	_, repo := newRepo(t)
	commit(t, repo, map[string]string{"file": "x", "folder/x": "x"}, gitserver.Symlink("link", "/etc"),
		gitserver.Symlink("folder/link", "x"))
	at := Repository{URL: repo.URL()}
	for name, want := range map[string]Reason{
		"file/a": PathTaken, "folder": PathTaken, "link": PathTaken, "link/a": PathTaken, "folder/link": PathTaken,
		"../a": "UnsafePath", "a/../b": "UnsafePath", "/a": "UnsafePath", ".git/config": "UnsafePath",
		"a/.GIT/x": "UnsafePath", "": "UnsafePath", "a//b": "UnsafePath",
	} {
		if _, err := push(t, at, "main", map[string][]byte{name: []byte("x")}); reasonOf(t, err) != want {
			t.Errorf("%q: want %s, got %v", name, want, err)
		}
	}
}

// A checkout serves several pushes, one after the other, without another download.
func TestCheckoutAdvancesToPushedCommits(t *testing.T) {
	s, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "0", "kept/x": "x"})
	client := newClient(t, Options{})
	var checkout *Checkout
	defer func() {
		if err := checkout.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 3 {
		b, err := client.Branch(t.Context(), Repository{URL: repo.URL()}, "main")
		if err != nil {
			t.Fatal(err)
		}
		if checkout == nil {
			if checkout, err = b.Checkout(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if checkout.Commit != b.Base {
			t.Fatalf("the checkout has %s, want %s", checkout.Commit, b.Base)
		}
		content := fmt.Sprint(i + 1)
		id, err := b.Push(t.Context(), checkout, testCommit(map[string][]byte{"a": []byte(content),
			"new/" + content: {}}))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkout.Advance(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(checkout.FS(), "a"); err != nil || string(got) != content {
			t.Errorf("got %q, %v", got, err)
		}
	}
	expectBranchFiles(t, s, repo, "main", map[string]string{"a": "3", "kept/x": "x", "new/1": "", "new/2": "",
		"new/3": ""})
	if err := checkout.Advance(t.Context(), strings.Repeat("0", 40)); reasonOf(t, err) != CommitNotFound {
		t.Errorf("got %v", err)
	}
}
