package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Checkout holds the files of one commit until it is closed.
type Checkout struct {
	// Commit that the files are of.
	Commit string

	tag   Tag
	dir   string
	store *store
	tree  *tree
	// links are the paths of submodules, parts the checkouts of those that were added.
	links  []string
	parts  []*Checkout
	client *Client
}

// Close removes what the checkout keeps on disk. Its FS ends with it.
func (c *Checkout) Close() error {
	return errors.Join(c.closeParts(), c.store.close(), os.RemoveAll(c.dir))
}

// Fetch gets a commit: without its history where the server allows to ask for
// a commit, else with the history of all branches and tags, inside the same
// bounds. Submodules are not followed, but by AddSubmodules. The caller closes the checkout. The
// error is an *Error.
func (r *Remote) Fetch(ctx context.Context, commit string) (*Checkout, error) {
	return r.FetchTag(ctx, Tag{Commit: commit})
}

// FetchTag gets the commit of a tag, and with it the tag itself if it is
// annotated. It is Fetch otherwise.
func (r *Remote) FetchTag(ctx context.Context, tag Tag) (_ *Checkout, err error) {
	defer func() { err = r.discreet(err) }()
	if !plumbing.IsHash(tag.Commit) || len(tag.Commit) != 40 {
		return nil, fail(Unsupported, "%.80q is not the full SHA-1 of a commit", tag.Commit)
	}
	want := plumbing.NewHash(tag.Commit)
	if tag.Object != "" {
		want = plumbing.NewHash(tag.Object)
	}
	work, err := r.client.work()
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(work, "git-")
	}
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "making a folder for the repository")
	}
	c := &Checkout{Commit: tag.Commit, tag: tag, dir: dir, client: r.client}
	err = guard(func() error {
		name := filepath.Join(dir, "pack")
		if err := r.download(ctx, r.request(want), plumbing.ZeroHash, name); err != nil {
			return err
		}
		return c.open(ctx, r, plumbing.NewHash(tag.Commit), name)
	})
	if err != nil {
		_ = c.store.close()
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return c, nil
}

// open resolves the pack and finds the files of the commit in it.
func (c *Checkout) open(ctx context.Context, r *Remote, want plumbing.Hash, name string) error {
	var err error
	if c.store, err = resolve(ctx, name, filepath.Join(c.dir, "objects"), r.client.limits); err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return failBy(Reason(artifact.Storage), err, "removing the pack")
	}
	if !c.store.has(want) {
		return r.noCommit(want)
	}
	c.tree, c.links, err = readCommit(ctx, c.store, want, r.client.limits.Tree)
	return err
}

func (r *Remote) noCommit(want plumbing.Hash) error {
	return fail(CommitNotFound, "the repository at %s has no commit %s that a branch or tag leads to, or does not give it out: push it, or name another",
		r.masked, want)
}

// base is a request that says how to answer, and nothing yet of what is wanted.
func (r *Remote) base() *packp.UploadPackRequest {
	req := packp.NewUploadPackRequest()
	set := func(c capability.Capability) { _ = req.Capabilities.Set(c) }
	for _, one := range []capability.Capability{capability.Sideband64k, capability.Sideband} {
		if r.caps.Supports(one) {
			set(one)
			break
		}
	}
	for _, one := range []capability.Capability{capability.OFSDelta, capability.NoProgress} {
		if r.caps.Supports(one) {
			set(one)
		}
	}
	if r.caps.Supports(capability.Agent) {
		_ = req.Capabilities.Set(capability.Agent, capability.DefaultAgent())
	}
	return req
}

// request says what to send: one commit if the server gives it out by itself,
// else everything.
func (r *Remote) request(want plumbing.Hash) *packp.UploadPackRequest {
	req := r.base()
	// Some servers talk only to clients that say they could negotiate, which is
	// never needed by one that has nothing yet.
	if r.caps.Supports(capability.MultiACK) {
		_ = req.Capabilities.Set(capability.MultiACK)
	}
	if !r.hasTip(want) && !r.caps.Supports(capability.AllowReachableSHA1InWant) {
		req.Wants = r.tips()
		return req
	}
	req.Wants = []plumbing.Hash{want}
	if r.caps.Supports(capability.Shallow) {
		_ = req.Capabilities.Set(capability.Shallow)
		req.Depth = packp.DepthCommits(1)
	}
	return req
}

// download writes the pack that the server sends to a file: what is asked for,
// without what comes with the commit have, if that is not zero.
func (r *Remote) download(ctx context.Context, req *packp.UploadPackRequest, have plumbing.Hash, name string) error {
	var body bytes.Buffer
	lines := pktline.NewEncoder(&body)
	err := req.UploadRequest.Encode(&body)
	if !have.IsZero() {
		err = errors.Join(err, lines.Encodef("have %s\n", have))
	}
	if err := errors.Join(err, lines.EncodeString("done\n")); err != nil {
		return failBy(OperationFailed, err, "asking for a commit")
	}
	answer, err := r.wire.ask(ctx, body.Bytes())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	limit := r.client.limits.PackBytes
	// The pack comes in frames, after a few lines: a little more than itself.
	bounded := &io.LimitedReader{R: answer, N: limit + limit/64 + 1<<20}
	err = receive(req, bounded, name)
	// An answer cut off at the limit can look whole.
	if bounded.N <= 0 {
		return unsafeTree(artifact.TooLarge, "", "what the server sends has more than the %d bytes allowed; the server may not give out "+
			"single commits (uploadpack.allowReachableSHA1InWant) and send all history", limit)
	}
	if err != nil {
		return r.badPack(ctx, req.Wants[0], err)
	}
	return nil
}

// diskError is a failure of our own.
type diskError struct{ error }

func (e diskError) Unwrap() error { return e.error }

// receive stores the pack inside an answer.
func receive(req *packp.UploadPackRequest, body io.Reader, name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return diskError{err}
	}
	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(body)); err != nil {
		return errors.Join(err, file.Close())
	}
	var pack io.Reader = resp
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	// Not io.Copy: the demuxer's errors must be told from those of the disk.
	buf := make([]byte, 64<<10)
	for {
		n, err := pack.Read(buf)
		if _, werr := file.Write(buf[:n]); werr != nil {
			return errors.Join(diskError{werr}, file.Close())
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
	}
	if err := file.Close(); err != nil {
		return diskError{err}
	}
	return nil
}

func (r *Remote) badPack(ctx context.Context, want plumbing.Hash, err error) error {
	if disk, ok := errors.AsType[diskError](err); ok {
		return failBy(Reason(artifact.Storage), disk.error, "storing what the server sends")
	}
	if ctx.Err() != nil {
		return unreachable(ctx, err, r.masked)
	}
	if said, ok := errors.AsType[*Error](err); ok {
		return said
	}
	// "not our ref" is all that a server may refuse a well-formed request for.
	if said, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		if r.hasTip(want) {
			return fail(OperationFailed, "the server of %s no longer gives out commit %s: %s", r.masked, want, saying(said.Text, r.secrets))
		}
		return r.noCommit(want)
	}
	return failBy(OperationFailed, err, "what %s sends breaks off or can't be read", r.masked)
}
