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

// Rewritten tells whether a branch was moved from one commit to another that
// does not come after it, as by a force push. The server is asked for the
// commits in between, without their files; one that can't leave those out is
// not asked, and false is the answer. The error is an *Error.
func (r *Remote) Rewritten(ctx context.Context, from, to string) (rewritten bool, err error) {
	defer func() { err = r.discreet(err) }()
	if !r.caps.Supports(capability.Filter) || !plumbing.IsHash(from) || !plumbing.IsHash(to) {
		return false, nil
	}
	work, err := r.client.work()
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(work, "git-")
	}
	if err != nil {
		return false, failBy(Reason(artifact.Storage), err, "making a folder for history")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	old, head := plumbing.NewHash(from), plumbing.NewHash(to)
	req := r.base()
	_ = req.Capabilities.Set(capability.Filter)
	req.Wants, req.Filter = []plumbing.Hash{head}, packp.FilterTreeDepth(0)
	err = guard(func() error {
		name := filepath.Join(dir, "pack")
		if err := r.download(ctx, req, old, name); err != nil {
			return err
		}
		st, err := resolve(ctx, name, filepath.Join(dir, "objects"), r.client.limits)
		if err != nil {
			return err
		}
		defer func() { _ = st.close() }()
		found, err := leadsTo(st, head, old)
		rewritten = !found
		return err
	})
	return rewritten && err == nil, err
}

// leadsTo follows the parents of a commit as far as the store has them.
func leadsTo(st *store, head, old plumbing.Hash) (bool, error) {
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
			continue // what leads to the old commit is sent, what comes before it is not
		}
		if err != nil {
			return false, err
		}
		var c gitobject.Commit
		if err := c.Decode(o); err != nil {
			return false, failBy(OperationFailed, err, "commit %s can't be read", h)
		}
		next = append(next, c.ParentHashes...)
	}
	return false, nil
}
