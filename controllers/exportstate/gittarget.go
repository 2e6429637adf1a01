package exportstate

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"

	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// gitPlace is a folder on a branch of a repository.
type gitPlace struct {
	client *git.Client
	spec   *v1alpha1.ExportRepository
	repo   git.Repository
	// key of hashes.
	key   []byte
	clock clock.PassiveClock
	memo  *memo

	branch   *git.Branch
	checkout *git.Checkout
}

var _ place = (*gitPlace)(nil)

// String implements place.
func (g *gitPlace) String() string { return describe(g.spec) }

// describe a folder on a branch, for people.
func describe(to *v1alpha1.ExportRepository) string {
	out := "branch " + to.Branch + " of " + artifact.MaskURL(to.URL)
	if at := folderOf(to); at != "." {
		out += ", folder " + at
	}
	return out
}

func (g *gitPlace) secret() string { return "" }

func (g *gitPlace) bytes() int { return 0 }

func (g *gitPlace) revision() string { return g.spec.Branch + "@sha1:" + g.branch.Base }

func (g *gitPlace) fits(map[string][]byte, []string) error { return nil } // the client has limits

func (g *gitPlace) close() {
	if g.checkout != nil {
		_ = g.checkout.Close()
		g.checkout = nil
	}
}

// folder that files are in, from the root.
func (g *gitPlace) folder() string { return folderOf(g.spec) }

// look implements place. Where the branch is as it was, nothing is fetched.
func (g *gitPlace) look(ctx context.Context, keys map[string]string) (_ map[string]found, err error) {
	g.close()
	if g.branch, err = g.client.Branch(ctx, g.repo, g.spec.Branch); err != nil {
		return nil, err
	}
	at := g.at(g.branch.Base)
	if g.memo.at == at && covers(g.memo.found, keys) {
		return g.memo.found, nil
	}
	if g.checkout, err = g.branch.Checkout(ctx); err != nil {
		return nil, err
	}
	out, err := lookInto(g.checkout.FS(), g.folder(), keys, g.key)
	if err != nil {
		return nil, err
	}
	g.memo.at, g.memo.found = at, out
	return out, nil
}

// at is a commit of a place.
func (g *gitPlace) at(commit string) string { return g.String() + " " + commit }

// covers is true when it is known of every file what it is.
func covers(have map[string]found, keys map[string]string) bool {
	for file := range keys {
		if _, ok := have[file]; !ok {
			return false
		}
	}
	return true
}

// notAFile is the sum of a folder or a link.
const notAFile = "no file"

// lookInto a folder. There is an entry for each file that is asked for, also for those that
// are not there.
func lookInto(fsys fs.FS, folder string, keys map[string]string, key []byte) (map[string]found, error) {
	out := map[string]found{}
	for file := range keys {
		out[file] = found{}
	}
	entries, err := fs.ReadDir(fsys, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fail(FileTakenReason, "spec.to.git.path: %q is no folder of the repository", folder)
	}
	for _, e := range entries {
		of, asked := keys[e.Name()]
		switch {
		case !asked:
		case !e.Type().IsRegular():
			out[e.Name()] = found{sum: notAFile}
		default:
			data, err := fs.ReadFile(fsys, path.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			out[e.Name()] = found{sum: statestore.Sum(key, data), export: isExport(data, of)}
		}
	}
	return out, nil
}

// write implements place.
func (g *gitPlace) write(ctx context.Context, c change) (_ string, err error) {
	if g.checkout == nil {
		if g.checkout, err = g.branch.Checkout(ctx); err != nil {
			return "", err
		}
	}
	files := map[string][]byte{}
	for file, content := range c.files {
		files[path.Join(g.folder(), file)] = content
	}
	for _, file := range c.remove {
		files[path.Join(g.folder(), file)] = nil
	}
	id, err := g.branch.Push(ctx, g.checkout, git.Commit{Files: files, Message: c.message,
		Name: g.spec.Author.Name, Email: g.spec.Author.Email, When: g.clock.Now()})
	if e, ok := errors.AsType[*git.Error](err); ok && e.Reason == git.BranchMoved {
		return "", &contendedError{err}
	}
	if err != nil {
		return "", err
	}
	now := maps.Clone(g.memo.found)
	for file, content := range c.files {
		now[file] = found{sum: statestore.Sum(g.key, content), export: true}
	}
	for _, file := range c.remove {
		now[file] = found{}
	}
	g.memo.at, g.memo.found = g.at(id), now
	return g.spec.Branch + "@sha1:" + id, nil
}
