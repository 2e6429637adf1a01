package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

const (
	repositoryName = "fleet"
	// exampleURL stands in the example for the repository's own address.
	exampleURL = "https://git.example.com/platform/fleet.git"
	// pollInterval is how often the source looks for a push here.
	exampleInterval, pollInterval = "interval: 1m", "interval: 2s"
)

// repository is a Git repository that is served, and a clone to work in.
type repository struct {
	server *gitserver.Server
	bare   *gitserver.Repo
	clone  string
}

// openRepository serves a repository made from the example. Its own address and
// how often it is looked at are the only lines that differ.
func openRepository(ctx context.Context, root, dir string) (opened *repository, err error) {
	tree, err := exampleTree(root)
	if err != nil {
		return nil, err
	}
	served := filepath.Join(dir, "git")
	if err := os.Mkdir(served, 0o700); err != nil {
		return nil, err
	}
	r := &repository{clone: filepath.Join(dir, repositoryName)}
	if r.server, err = gitserver.New(served); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.server.Close())
			opened = nil
		}
	}()
	if r.bare, err = r.server.NewRepo(ctx, repositoryName); err != nil {
		return nil, err
	}
	for name, old := range map[string]string{exampleURL: r.bare.URL(), exampleInterval: pollInterval} {
		if err := replace(tree["clusters/dev/source.yaml"], name, old); err != nil {
			return nil, fmt.Errorf("clusters/dev/source.yaml of the example: %w", err)
		}
	}
	if err := replace(tree["clusters/prod/source.yaml"], exampleURL, r.bare.URL()); err != nil {
		return nil, fmt.Errorf("clusters/prod/source.yaml of the example: %w", err)
	}
	if _, err := r.bare.CommitDir(ctx, tree, "The shop and where it runs"); err != nil {
		return nil, err
	}
	_, err = r.server.Git(ctx, dir, "clone", "--quiet", r.bare.URL(), r.clone)
	return r, err
}

// exampleTree reads the example into memory.
func exampleTree(root string) (fstest.MapFS, error) {
	source := os.DirFS(filepath.Join(root, "examples", "standalone"))
	tree := fstest.MapFS{}
	err := fs.WalkDir(source, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(source, path)
		tree[path] = &fstest.MapFile{Data: data, Mode: 0o644}
		return err
	})
	return tree, err
}

func replace(file *fstest.MapFile, old, by string) error {
	if file == nil {
		return fs.ErrNotExist
	}
	text, err := replaceOnce(string(file.Data), old, by)
	file.Data = []byte(text)
	return err
}

func replaceOnce(text, old, by string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return text, fmt.Errorf("%q is in it %d times, not once", old, n)
	}
	return strings.Replace(text, old, by, 1), nil
}

// edit is one change of a file.
type edit struct{ path, old, by string }

// push changes files, and commits and pushes that. It returns the revision, as a
// source calls it, and the lines that changed.
func (r *repository) push(ctx context.Context, message string, edits ...edit) (revision string, diff []string, err error) {
	for _, e := range edits {
		path := filepath.Join(r.clone, filepath.FromSlash(e.path))
		data, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		text, err := replaceOnce(string(data), e.old, e.by)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", e.path, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	out, err := r.git(ctx, "diff", "--unified=0", "--no-color", "--no-prefix")
	if err != nil {
		return "", nil, err
	}
	for l := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutPrefix(l, "+++ "); ok {
			diff = append(diff, name)
		} else if !strings.HasPrefix(l, "---") && (strings.HasPrefix(l, "-") || strings.HasPrefix(l, "+")) {
			diff = append(diff, "  "+l[:1]+" "+strings.TrimSpace(l[1:]))
		}
	}
	if _, err := r.git(ctx, "commit", "--quiet", "--all", "--message="+message); err != nil {
		return "", nil, err
	}
	if _, err := r.git(ctx, "push", "--quiet", "origin", gitserver.DefaultBranch); err != nil {
		return "", nil, err
	}
	revision, err = r.revision(ctx)
	return revision, diff, err
}

// revision is the clone's head, as a source calls it.
func (r *repository) revision(ctx context.Context) (string, error) {
	id, err := r.git(ctx, "rev-parse", "HEAD")
	return gitserver.DefaultBranch + "@sha1:" + id, err
}

func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	settings := []string{"-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "maintenance.auto=false", "-c", "gc.auto=0"}
	return r.server.Git(ctx, r.clone, append(settings, args...)...)
}

// short is a revision with as much of the commit as people say.
func short(revision string) string {
	const enough = 12
	if i := strings.LastIndexByte(revision, ':'); i >= 0 && len(revision) > i+1+enough {
		return revision[:i+1+enough]
	}
	return revision
}
