package git

import (
	"context"
	"errors"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
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
	dir, err := r.client.makeTempDir("history")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	old, head := plumbing.NewHash(from), plumbing.NewHash(to)
	req := r.newRequest()
	_ = req.Capabilities.Set(capability.Filter)
	req.Wants, req.Filter = []plumbing.Hash{head}, packp.FilterTreeDepth(0)
	err = recoverPanic(func() error {
		st, err := r.fetchObjects(ctx, req, old, dir)
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
		c, err := st.commit(h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			continue // the server omits the ancestors of old
		}
		if err != nil {
			return false, err
		}
		next = append(next, c.ParentHashes...)
	}
	return false, nil
}
