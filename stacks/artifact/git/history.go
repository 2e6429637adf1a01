package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/ksctl/gitops/stacks/artifact"
)

// HistoryRewritten is true if a branch moved from one commit to another that is not a
// descendant, for example by a force push. It downloads the commits in between without their
// files. If the server can't omit the files, it downloads nothing and returns false. The error
// is an *Error.
func (r *Remote) HistoryRewritten(ctx context.Context, from, to string) (rewritten bool, err error) {
	defer func() { err = r.redactError(err) }()
	if !r.capabilities.Supports(capability.Filter) || !plumbing.IsHash(from) || !plumbing.IsHash(to) {
		return false, nil
	}
	work, err := r.client.workDir()
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(work, "git-")
	}
	if err != nil {
		return false, wrapError(Reason(artifact.Storage), err, "creating a directory for the history")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	old, head := plumbing.NewHash(from), plumbing.NewHash(to)
	req := r.newRequest()
	_ = req.Capabilities.Set(capability.Filter)
	req.Wants, req.Filter = []plumbing.Hash{head}, packp.FilterTreeDepth(0)
	err = recoverPanic(func() error {
		name := filepath.Join(dir, "pack")
		if err := r.download(ctx, req, old, name); err != nil {
			return err
		}
		st, err := loadPack(ctx, name, filepath.Join(dir, "objects"), r.client.limits)
		if err != nil {
			return err
		}
		defer func() { _ = st.close() }()
		ancestor, err := isAncestor(st, head, old)
		rewritten = !ancestor
		return err
	})
	return rewritten && err == nil, err
}

// isAncestor is true if old is an ancestor of head, or head itself, as far as the store has the
// parents.
func isAncestor(st *objectStore, head, old plumbing.Hash) (bool, error) {
	seen := map[plumbing.Hash]bool{}
	for next := []plumbing.Hash{head}; len(next) > 0; {
		h := next[len(next)-1]
		next = next[:len(next)-1]
		if h == old {
			return true, nil
		}
		if seen[h] {
			continue
		}
		seen[h] = true
		o, err := st.EncodedObject(plumbing.CommitObject, h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue // the server omits the ancestors of old
		}
		if err != nil {
			return false, err
		}
		var c gitobject.Commit
		if err := c.Decode(o); err != nil {
			return false, wrapError(OperationFailed, err, "commit %s can't be read", h)
		}
		next = append(next, c.ParentHashes...)
	}
	return false, nil
}
