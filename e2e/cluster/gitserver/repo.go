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

// DefaultBranch is the branch that commits go to by default, and HEAD of a new repository.
const DefaultBranch = "main"

// Repo is one bare repository. It is safe for concurrent use; commits are serialized.
type Repo struct {
	server      *Server
	name        string
	dir         string
	commitMutex sync.Mutex // held while a branch is moved
}

// NewRepo creates an empty repository that is served as /<name>.git. Every client that the server
// authorizes can read and write. The name may contain slashes.
func (s *Server) NewRepo(ctx context.Context, name string) (*Repo, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("creating repository %q: the name is not a local path", name)
	}
	r := &Repo{server: s, name: name, dir: filepath.Join(s.dir, filepath.FromSlash(name)+".git")}
	if _, err := os.Stat(r.dir); err == nil {
		return nil, fmt.Errorf("creating repository %s: it already exists", name)
	}
	if _, err := s.run(ctx, s.dir, nil, "init", "--quiet", "--bare", "--initial-branch="+DefaultBranch,
		r.dir); err != nil {
		return nil, fmt.Errorf("creating repository %s: %w", name, err)
	}
	for key, value := range map[string]string{
		"http.receivepack": "true",
		// A source controller may fetch a commit instead of a branch.
		"uploadpack.allowAnySHA1InWant": "true",
		"uploadpack.allowFilter":        "true",
		// Housekeeping in the background would outlive the test.
		"gc.auto":          "0",
		"receive.autogc":   "false",
		"maintenance.auto": "false",
	} {
		if _, err := s.run(ctx, r.dir, nil, "config", key, value); err != nil {
			return nil, fmt.Errorf("configuring repository %s: %w", name, err)
		}
	}
	return r, nil
}

// URL returns the clone URL, without credentials.
func (r *Repo) URL() string { return r.server.URL() + "/" + r.name + ".git" }

// Dir returns the folder of the bare repository.
func (r *Repo) Dir() string { return r.dir }

// Commit adds a commit to a branch and returns the commit id. The map files has the new content by
// path; other files are unchanged unless an option changes them. A missing branch is created.
func (r *Repo) Commit(ctx context.Context, files map[string]string, message string,
	options ...CommitOption) (string, error) {
	c := &change{branch: DefaultBranch, message: message}
	for path, content := range files {
		c.entries = append(c.entries, fileChange{path: path, mode: modeFile, content: []byte(content)})
	}
	return r.apply(ctx, c, options)
}

// CommitDir adds a commit with exactly the files of a tree and returns the commit id. Executable
// files stay executable; an entry that is neither a file nor a folder is an error.
func (r *Repo) CommitDir(ctx context.Context, tree fs.FS, message string, options ...CommitOption) (string, error) {
	c := &change{branch: DefaultBranch, message: message, replace: true}
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		e, err := readFileChange(tree, path, d)
		c.entries = append(c.entries, e)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the tree to commit: %w", err)
	}
	return r.apply(ctx, c, options)
}

func readFileChange(tree fs.FS, path string, d fs.DirEntry) (fileChange, error) {
	info, err := d.Info()
	if err != nil {
		return fileChange{}, err
	}
	if !info.Mode().IsRegular() {
		return fileChange{}, fmt.Errorf("%s is neither a file nor a folder (%s)", path, info.Mode())
	}
	e := fileChange{path: path, mode: modeFile}
	if info.Mode()&0o111 != 0 {
		e.mode = modeExecutable
	}
	e.content, err = fs.ReadFile(tree, path)
	return e, err
}

// apply commits a change with git fast-import, which needs one process for any number of files and
// no working tree.
func (r *Repo) apply(ctx context.Context, c *change, options []CommitOption) (string, error) {
	for _, o := range options {
		o(c)
	}
	r.commitMutex.Lock()
	defer r.commitMutex.Unlock()
	tip, err := r.Head(ctx, c.branch)
	if err != nil && !errors.Is(err, ErrNoBranch) {
		return "", err
	}
	if c.parent == "" && !c.orphan {
		c.parent = tip
	}
	// --force allows non-fast-forward updates, which some tests need. The lock prevents accidental
	// ones.
	id, err := r.server.run(ctx, r.dir, c.stream(), "fast-import", "--quiet", "--force", "--done")
	if err != nil {
		return "", fmt.Errorf("committing to %s of %s: %w", c.branch, r.name, err)
	}
	return id, nil
}

// ErrNoBranch is the error of [Repo.Head] for a missing branch.
var ErrNoBranch = errors.New("no such branch")

// Head returns the id of a branch's last commit.
func (r *Repo) Head(ctx context.Context, branch string) (string, error) {
	id, err := r.server.run(ctx, r.dir, nil, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
	if err != nil {
		return "", fmt.Errorf("reading the branch %s of %s: %w", branch, r.name, err)
	}
	if id == "" || strings.Contains(id, "\n") {
		return "", fmt.Errorf("reading the branch %s of %s: %w", branch, r.name, ErrNoBranch)
	}
	return id, nil
}

// SetBranch points a branch to a commit: it creates the branch, or moves it as a force push does.
func (r *Repo) SetBranch(ctx context.Context, branch, commit string) error {
	return r.setRef(ctx, "refs/heads/"+branch, commit)
}

// SetTag creates a lightweight tag on a commit, or moves an existing tag.
func (r *Repo) SetTag(ctx context.Context, tag, commit string) error {
	return r.setRef(ctx, "refs/tags/"+tag, commit)
}

// DeleteBranch removes a branch.
func (r *Repo) DeleteBranch(ctx context.Context, branch string) error {
	return r.updateRef(ctx, "deleting the branch "+branch, "-d", "refs/heads/"+branch)
}

func (r *Repo) setRef(ctx context.Context, ref, commit string) error {
	return r.updateRef(ctx, "moving "+ref, ref, commit)
}

// updateRef runs git update-ref. doing describes that in an error.
func (r *Repo) updateRef(ctx context.Context, doing string, args ...string) error {
	r.commitMutex.Lock()
	defer r.commitMutex.Unlock()
	if _, err := r.server.run(ctx, r.dir, nil, append([]string{"update-ref"}, args...)...); err != nil {
		return fmt.Errorf("%s of %s: %w", doing, r.name, err)
	}
	return nil
}
