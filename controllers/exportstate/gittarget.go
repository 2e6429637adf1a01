package exportstate

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"

	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// gitTarget is a folder on a branch of a repository.
type gitTarget struct {
	client *git.Client
	spec   *v1alpha1.ExportRepository
	repo   git.Repository
	// key is the key of the hashes.
	key   []byte
	clock clock.PassiveClock
	cache *exportCache

	branch   *git.Branch
	checkout *git.Checkout
}

var _ exportTarget = (*gitTarget)(nil)

// String implements exportTarget.
func (g *gitTarget) String() string { return describe(g.spec) }

// describe returns a folder on a branch for messages and status.target.
func describe(to *v1alpha1.ExportRepository) string {
	out := "branch " + to.Branch + " of " + artifact.MaskURL(to.URL)
	if folder := folderOf(to); folder != "." {
		out += ", folder " + folder
	}
	return out
}

func (g *gitTarget) secretName() string { return "" }

func (g *gitTarget) size() int { return 0 }

func (g *gitTarget) revision() string { return g.spec.Branch + "@sha1:" + g.branch.Base }

func (g *gitTarget) checkSize(map[string][]byte, []string) error { return nil } // the Git client enforces limits

func (g *gitTarget) close() {
	if g.checkout != nil {
		_ = g.checkout.Close()
		g.checkout = nil
	}
}

// readFiles implements exportTarget. It fetches nothing if the branch has not changed.
func (g *gitTarget) readFiles(ctx context.Context, keys map[string]string) (_ map[string]targetFile, err error) {
	g.close()
	if g.branch, err = g.client.Branch(ctx, g.repo, g.spec.Branch); err != nil {
		return nil, err
	}
	cacheKey := g.cacheKey(g.branch.Base)
	if g.cache.cacheKey == cacheKey && covers(g.cache.files, keys) {
		return g.cache.files, nil
	}
	if g.checkout, err = g.branch.Checkout(ctx); err != nil {
		return nil, err
	}
	out, err := readFolder(g.checkout.FS(), folderOf(g.spec), keys, g.key)
	if err != nil {
		return nil, err
	}
	g.cache.cacheKey, g.cache.files = cacheKey, out
	return out, nil
}

// cacheKey identifies a commit of a target.
func (g *gitTarget) cacheKey(commit string) string { return g.String() + " " + commit }

// covers reports whether have has an entry for every file.
func covers(have map[string]targetFile, keys map[string]string) bool {
	for file := range keys {
		if _, ok := have[file]; !ok {
			return false
		}
	}
	return true
}

// notAFile is the hash of a folder or a link.
const notAFile = "no file"

// readFolder returns the state of files in a folder. The result has an entry for each of keys, also
// for files that do not exist.
func readFolder(fsys fs.FS, folder string, keys map[string]string, key []byte) (map[string]targetFile, error) {
	out := map[string]targetFile{}
	for file := range keys {
		out[file] = targetFile{}
	}
	entries, err := fs.ReadDir(fsys, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, reconcile.NewTerminalError(v1alpha1.FileTakenReason,
			"spec.to.git.path: %q is not a folder in the repository", folder)
	}
	for _, e := range entries {
		entryKey, wanted := keys[e.Name()]
		switch {
		case !wanted:
		case !e.Type().IsRegular():
			out[e.Name()] = targetFile{hash: notAFile}
		default:
			data, err := fs.ReadFile(fsys, path.Join(folder, e.Name()))
			if err != nil {
				return nil, err
			}
			out[e.Name()] = targetFile{hash: statestore.HashBytes(key, data), isExport: isExport(data, entryKey)}
		}
	}
	return out, nil
}

// write implements exportTarget.
func (g *gitTarget) write(ctx context.Context, c changeSet) (_ string, err error) {
	if g.checkout == nil {
		if g.checkout, err = g.branch.Checkout(ctx); err != nil {
			return "", err
		}
	}
	files, updated, folder := map[string][]byte{}, maps.Clone(g.cache.files), folderOf(g.spec)
	for file, content := range c.files {
		files[path.Join(folder, file)] = content
		updated[file] = targetFile{hash: statestore.HashBytes(g.key, content), isExport: true}
	}
	for _, file := range c.remove {
		files[path.Join(folder, file)] = nil
		updated[file] = targetFile{}
	}
	id, err := g.branch.Push(ctx, g.checkout, git.Commit{Files: files, Message: c.message,
		Name: g.spec.Author.Name, Email: g.spec.Author.Email, When: g.clock.Now()})
	if e, ok := errors.AsType[*git.Error](err); ok && e.Reason == git.BranchMoved {
		return "", errConflict
	}
	if err != nil {
		return "", err
	}
	g.cache.cacheKey, g.cache.files = g.cacheKey(id), updated
	return g.spec.Branch + "@sha1:" + id, nil
}
