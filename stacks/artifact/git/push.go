package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
)

// Branch is a branch of a repository to commit to, with the state of the server when it was
// read.
type Branch struct {
	// Tip is the current commit of the branch; empty if the branch does not exist.
	Tip string
	// Base is the parent of the next commit: the tip or, if the branch does not exist, the
	// tip of the default branch; empty in a repository without commits.
	Base string

	endpoint
	client *Client
	repo   Repository
	name   string
	// remote has the base; nil without one.
	remote *Remote
}

// Branch reads a branch from the server. Unlike List, it follows no redirect to another host,
// because a redirect could send the pushed content to any host. The error is an *Error.
func (c *Client) Branch(ctx context.Context, repo Repository, name string) (*Branch, error) {
	if plumbing.NewBranchReferenceName(name).Validate() != nil {
		return nil, newError(BranchInvalid, "%s is not a valid branch name", quoteName(name))
	}
	w, e, err := c.newTransport(repo, uploadPack)
	if err != nil {
		return nil, err
	}
	refuseOtherHosts(w)
	b := &Branch{endpoint: e, client: c, repo: repo, name: name}
	r, err := c.list(ctx, w, e)
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == RepositoryEmpty {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	b.remote, b.Tip = r, r.branchTip(name)
	b.Base = cmp.Or(b.Tip, r.branchTip(r.defaultBranch()), r.branchTip(DefaultBranch), r.branchTip("master"))
	return b, nil
}

// branchTip returns the commit of a branch, and an empty string if the branch does not exist.
func (r *Remote) branchTip(name string) string {
	if h := r.refs[branchPrefix+name]; !h.IsZero() {
		return h.String()
	}
	return ""
}

// refuseOtherHosts makes a transport refuse redirects to other hosts.
func refuseOtherHosts(w transport) {
	if h, ok := w.(*httpTransport); ok {
		h.sameHostOnly = true
	}
}

// Checkout downloads the files of the base. Without a base, it returns an empty checkout. The
// caller must close it. The error is an *Error.
func (b *Branch) Checkout(ctx context.Context) (*Checkout, error) {
	if b.Base != "" {
		return b.remote.Fetch(ctx, b.Base)
	}
	dir, err := b.client.makeTempDir("repository")
	if err != nil {
		return nil, err
	}
	c := &Checkout{dir: dir, client: b.client}
	if c.store, err = newStore(ctx, filepath.Join(dir, "objects")); err != nil {
		_ = os.RemoveAll(dir)
		return nil, storageError(err)
	}
	c.tree = &tree{store: c.store, nodes: map[string]*node{".": {name: ".", mode: os.ModeDir | 0o755}}}
	return c, nil
}

// Push pushes a commit to the branch, and creates the branch if it does not exist; checkout is a
// checkout of its base. It returns the ID of the commit, or of the base if no file would change. It
// never forces: the server accepts the commit only if the branch did not change since it was read.
// Otherwise the reason is BranchMoved, and the caller must read the branch again. If the connection
// fails, the ID is returned with the error: the server may have accepted the commit. The error is
// an *Error.
func (b *Branch) Push(ctx context.Context, checkout *Checkout, change Commit) (id string, err error) {
	defer func() { err = b.redactError(err) }()
	var commit plumbing.Hash
	var pack bytes.Buffer
	err = recoverPanic(func() (err error) {
		commit, err = commitFiles(checkout, change, &pack, b.client.limits.Tree)
		return err
	})
	if err != nil {
		return "", err
	}
	if commit.String() == b.Base {
		return b.Base, nil
	}
	return commit.String(), b.pushObjects(ctx, commit, pack.Bytes())
}

// Advance moves a checkout to a commit that Push created from it, without a download. After a
// failed push, the checkout must not be used for another one: a pack has only objects that the
// checkout did not have. The error is an *Error.
func (c *Checkout) Advance(ctx context.Context, commit string) error {
	return recoverPanic(func() error {
		t, submodules, err := readCommit(ctx, c.store, plumbing.NewHash(commit), c.client.limits.Tree)
		if err != nil {
			return err
		}
		c.Commit, c.tree, c.submodulePaths = commit, t, submodules
		return nil
	})
}

// maxReport bounds the bytes that are read of the response to a push.
const maxReport = 1 << 20

// pushObjects sends objects to the server, and requests to move the branch from the tip to a
// commit.
func (b *Branch) pushObjects(ctx context.Context, commit plumbing.Hash, pack []byte) error {
	w, _, err := b.client.newTransport(b.repo, receivePack)
	if err != nil {
		return err
	}
	refuseOtherHosts(w)
	refs, err := b.advertisedRefs(ctx, w)
	if err != nil {
		return err
	}
	ref, old := plumbing.NewBranchReferenceName(b.name), plumbing.NewHash(b.Tip)
	if refs.References[ref.String()] != old {
		return b.branchMovedError()
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(refs.Capabilities)
	multiplexed := refs.Capabilities.Supports(capability.Sideband64k)
	if multiplexed {
		_ = req.Capabilities.Set(capability.Sideband64k)
	}
	req.Commands = []*packp.Command{{Name: ref, Old: old, New: commit}}
	req.Packfile = io.NopCloser(bytes.NewReader(pack))
	var body bytes.Buffer
	if err := req.Encode(&body); err != nil {
		return wrapError(OperationFailed, err, "encoding the push request")
	}
	resp, err := w.send(ctx, body.Bytes())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Close() }()
	return b.readReport(ctx, resp, multiplexed)
}

// advertisedRefs requests the refs from git-receive-pack, which responds also in a repository
// without commits.
func (b *Branch) advertisedRefs(ctx context.Context, w transport) (*packp.AdvRefs, error) {
	body, err := w.openRefs(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	refs, err := b.decodeRefs(ctx, io.LimitReader(body, b.client.limits.RefBytes))
	if err != nil {
		return nil, err
	}
	if !refs.Capabilities.Supports(capability.ReportStatus) {
		return nil, newError(Unsupported,
			"the server of %s does not report the result of a push (report-status), so that nothing is pushed",
			b.maskedURL)
	}
	return refs, nil
}

// readReport reads the result of a push from the response of the server.
func (b *Branch) readReport(ctx context.Context, body io.Reader, multiplexed bool) error {
	body = io.LimitReader(body, maxReport)
	messages := &boundedBuffer{}
	if multiplexed {
		frames := sideband.NewDemuxer(sideband.Sideband64k, body)
		frames.Progress = messages
		body = frames
	}
	report := packp.NewReportStatus()
	if err := recoverPanic(func() error { return report.Decode(body) }); err != nil {
		if ctx.Err() != nil {
			return b.connectionError(ctx, err)
		}
		if gitErr, ok := errors.AsType[*Error](err); ok {
			return gitErr
		}
		return wrapError(OperationFailed, err, "the response of %s to a push is incomplete or can't be read: %s",
			b.maskedURL, b.quoteServerText(messages.String()))
	}
	rejection := report.Error()
	if rejection == nil && len(report.CommandStatuses) == 0 {
		rejection = errors.New("the response does not report the result for the branch")
	}
	if rejection == nil {
		return nil
	}
	// Compare the branch instead of the message, because every server words it differently.
	if current, err := b.client.Branch(ctx, b.repo, b.name); err == nil && current.Tip != b.Tip {
		return b.branchMovedError()
	}
	_, _ = io.Copy(io.Discard, body) // messages of hooks can come last
	return newError(PushRefused,
		"the server of %s rejected a push to the branch %s: %s: %s: check that the credentials allow it",
		b.maskedURL, quoteName(b.name), b.quoteServerText(rejection.Error()), b.quoteServerText(messages.String()))
}

func (b *Branch) branchMovedError() error {
	return newError(BranchMoved, "the branch %s of %s was updated by another push", quoteName(b.name), b.maskedURL)
}
