package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// DefaultBranch is where commits go, and what HEAD of a new repository names.
const DefaultBranch = "main"

// Repo is one bare repository. Its methods may be called from several
// goroutines at once; commits happen one after the other.
type Repo struct {
	server *Server
	name   string
	dir    string
	commit sync.Mutex // held while a branch is moved
}

// NewRepo makes an empty repository that is served as /<name>.git, for reading
// and, by anyone who can reach it, writing. The name may contain slashes.
func (s *Server) NewRepo(ctx context.Context, name string) (*Repo, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("make the repository %q: the name leads elsewhere", name)
	}
	r := &Repo{server: s, name: name, dir: filepath.Join(s.dir, filepath.FromSlash(name)+".git")}
	if _, err := os.Stat(r.dir); err == nil {
		return nil, fmt.Errorf("make the repository %s: it is there already", name)
	}
	if _, err := s.run(ctx, s.dir, nil, "init", "--quiet", "--bare", "--initial-branch="+DefaultBranch, r.dir); err != nil {
		return nil, fmt.Errorf("make the repository %s: %w", name, err)
	}
	for key, value := range map[string]string{
		"http.receivepack": "true",
		// A source controller may ask for a commit instead of a branch.
		"uploadpack.allowAnySHA1InWant": "true",
		"uploadpack.allowFilter":        "true",
		// Housekeeping in the background would outlive the test.
		"gc.auto":          "0",
		"receive.autogc":   "false",
		"maintenance.auto": "false",
	} {
		if _, err := s.run(ctx, r.dir, nil, "config", key, value); err != nil {
			return nil, fmt.Errorf("set the repository %s up: %w", name, err)
		}
	}
	return r, nil
}

// URL returns the address to clone from. It carries no password.
func (r *Repo) URL() string { return r.server.url + "/" + r.name + ".git" }

// Dir returns the folder of the bare repository.
func (r *Repo) Dir() string { return r.dir }

// Commit adds a commit to a branch and returns its id. Files says which paths
// get which content; other files stay as they are, unless an option says
// otherwise. The branch is made if there is none.
func (r *Repo) Commit(ctx context.Context, files map[string]string, message string, options ...CommitOption) (string, error) {
	c := &change{branch: DefaultBranch, message: message}
	for path, content := range files {
		c.entries = append(c.entries, entry{path: path, mode: modeFile, content: []byte(content)})
	}
	for _, o := range options {
		o(c)
	}
	return r.apply(ctx, c)
}

// CommitDir adds a commit whose files are those of a tree and no others, and
// returns its id. Executable files stay executable; anything but files and
// folders is an error.
func (r *Repo) CommitDir(ctx context.Context, tree fs.FS, message string, options ...CommitOption) (string, error) {
	c := &change{branch: DefaultBranch, message: message, replace: true}
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		e, err := read(tree, path, d)
		c.entries = append(c.entries, e)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the tree to commit: %w", err)
	}
	for _, o := range options {
		o(c)
	}
	return r.apply(ctx, c)
}

func read(tree fs.FS, path string, d fs.DirEntry) (entry, error) {
	info, err := d.Info()
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("%s is neither a file nor a folder (%s)", path, info.Mode())
	}
	e := entry{path: path, mode: modeFile}
	if info.Mode()&0o111 != 0 {
		e.mode = modeExecutable
	}
	e.content, err = fs.ReadFile(tree, path)
	return e, err
}

// apply makes a commit of a change with git fast-import: one process, however
// many files, and no working tree.
func (r *Repo) apply(ctx context.Context, c *change) (string, error) {
	r.commit.Lock()
	defer r.commit.Unlock()
	tip, err := r.Head(ctx, c.branch)
	if err != nil && !errors.Is(err, ErrNoBranch) {
		return "", err
	}
	if c.parent == "" && !c.orphan {
		c.parent = tip
	}
	// Force: moving a branch to where its tip is no ancestor is what some tests
	// are about, and the lock keeps it from happening unasked.
	id, err := r.server.run(ctx, r.dir, c.stream(), "fast-import", "--quiet", "--force", "--done")
	if err != nil {
		return "", fmt.Errorf("commit to %s of %s: %w", c.branch, r.name, err)
	}
	return id, nil
}

// ErrNoBranch is what [Repo.Head] returns for a branch that does not exist.
var ErrNoBranch = errors.New("no such branch")

// Head returns the id of a branch's last commit.
func (r *Repo) Head(ctx context.Context, branch string) (string, error) {
	id, err := r.server.run(ctx, r.dir, nil, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
	if err != nil {
		return "", fmt.Errorf("read the branch %s of %s: %w", branch, r.name, err)
	}
	if id == "" || strings.Contains(id, "\n") {
		return "", fmt.Errorf("read the branch %s of %s: %w", branch, r.name, ErrNoBranch)
	}
	return id, nil
}

// SetBranch lets a branch point to a commit, whatever it pointed to before: a
// new branch, or what a force push does.
func (r *Repo) SetBranch(ctx context.Context, branch, commit string) error {
	return r.setRef(ctx, "refs/heads/"+branch, commit)
}

// SetTag lets a lightweight tag point to a commit; one that exists is moved.
func (r *Repo) SetTag(ctx context.Context, tag, commit string) error {
	return r.setRef(ctx, "refs/tags/"+tag, commit)
}

// DeleteBranch removes a branch.
func (r *Repo) DeleteBranch(ctx context.Context, branch string) error {
	r.commit.Lock()
	defer r.commit.Unlock()
	if _, err := r.server.run(ctx, r.dir, nil, "update-ref", "-d", "refs/heads/"+branch); err != nil {
		return fmt.Errorf("delete the branch %s of %s: %w", branch, r.name, err)
	}
	return nil
}

func (r *Repo) setRef(ctx context.Context, ref, commit string) error {
	r.commit.Lock()
	defer r.commit.Unlock()
	if _, err := r.server.run(ctx, r.dir, nil, "update-ref", ref, commit); err != nil {
		return fmt.Errorf("move %s of %s: %w", ref, r.name, err)
	}
	return nil
}
