package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

const (
	repositoryName = "fleet"
	// exampleURL is the placeholder of the repository's address in the example.
	exampleURL = "https://git.example.com/platform/fleet.git"
	// pollInterval is the interval of the source in the demo; exampleInterval that of the example.
	exampleInterval, pollInterval = "interval: 1m", "interval: 2s"
	// devSource and prodSource have both in the example.
	devSource, prodSource = "clusters/dev/source.yaml", "clusters/prod/source.yaml"
)

// repository is a served Git repository and a local clone.
type repository struct {
	server *gitserver.Server
	bare   *gitserver.Repo
	clone  string
}

// newRepository serves a repository with the content of the example. Only its address and the
// source's interval differ from the example.
func newRepository(ctx context.Context, root, dir string) (opened *repository, err error) {
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
	if _, err = r.bare.CommitDir(ctx, os.DirFS(filepath.Join(root, "examples", "standalone")),
		"The shop and where it runs"); err != nil {
		return nil, err
	}
	if _, err = r.server.Git(ctx, dir, "clone", "--quiet", r.bare.URL(), r.clone); err != nil {
		return nil, err
	}
	_, _, err = r.push(ctx, "Address of this repository", edit{devSource, exampleURL, r.bare.URL()},
		edit{devSource, exampleInterval, pollInterval},
		edit{prodSource, exampleURL, r.bare.URL()})
	return r, err
}

func replaceOnce(text, old, replacement string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return text, fmt.Errorf("%q occurs %d times, expected once", old, n)
	}
	return strings.Replace(text, old, replacement, 1), nil
}

// edit is a replacement in a file.
type edit struct{ path, old, replacement string }

// push edits files, commits and pushes the edits. It returns the revision in the format of a
// source, and the changed lines.
func (r *repository) push(ctx context.Context, message string,
	edits ...edit) (revision string, diff []string, err error) {
	for _, e := range edits {
		path := filepath.Join(r.clone, filepath.FromSlash(e.path))
		data, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		text, err := replaceOnce(string(data), e.old, e.replacement)
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

// revision returns the clone's HEAD in the format of a source's revision.
func (r *repository) revision(ctx context.Context) (string, error) {
	id, err := r.git(ctx, "rev-parse", "HEAD")
	return gitserver.DefaultBranch + "@sha1:" + id, err
}

func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	settings := []string{"-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "maintenance.auto=false",
		"-c", "gc.auto=0"}
	return r.server.Git(ctx, r.clone, append(settings, args...)...)
}

// short returns a revision with an abbreviated commit id.
func short(revision string) string {
	const enough = 12
	if i := strings.LastIndexByte(revision, ':'); i >= 0 && len(revision) > i+1+enough {
		return revision[:i+1+enough]
	}
	return revision
}
