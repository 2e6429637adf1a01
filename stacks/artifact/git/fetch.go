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
	// Commit is the ID of the commit.
	Commit string

	tag   Tag
	dir   string
	store *objectStore
	tree  *tree
	// submodulePaths are the paths of submodules; submodules are the checkouts of the
	// submodules that were added.
	submodulePaths []string
	submodules     []*Checkout
	client         *Client
}

// Close removes the files of the checkout and its submodules from the disk. FS can't be used
// afterwards.
func (c *Checkout) Close() error {
	var errs []error
	for _, part := range c.submodules {
		errs = append(errs, part.Close())
	}
	return errors.Join(append(errs, c.store.close(), os.RemoveAll(c.dir))...)
}

// Fetch downloads a commit. If the server allows requests for single commits, it downloads
// no history; otherwise it downloads the history of all branches and tags, within the same
// limits. It does not fetch submodules; AddSubmodules does. The caller must close the
// checkout. The error is an *Error.
func (r *Remote) Fetch(ctx context.Context, commit string) (*Checkout, error) {
	return r.FetchTag(ctx, Tag{Commit: commit})
}

// FetchTag downloads the commit of a tag and, if the tag is annotated, the tag object. For
// other tags it is the same as Fetch.
func (r *Remote) FetchTag(ctx context.Context, tag Tag) (_ *Checkout, err error) {
	defer func() { err = r.redactError(err) }()
	if !plumbing.IsHash(tag.Commit) {
		return nil, newError(Unsupported, "%.80q is not the full SHA-1 of a commit", tag.Commit)
	}
	commit := plumbing.NewHash(tag.Commit)
	want := commit
	if tag.Object != "" {
		want = plumbing.NewHash(tag.Object)
	}
	dir, err := r.client.makeTempDir("repository")
	if err != nil {
		return nil, err
	}
	c := &Checkout{Commit: tag.Commit, tag: tag, dir: dir, client: r.client}
	err = recoverPanic(func() (err error) {
		if c.store, err = r.fetchObjects(ctx, r.fetchRequest(want), plumbing.ZeroHash, dir); err != nil {
			return err
		}
		if !c.store.has(commit) {
			return r.commitNotFoundError(commit)
		}
		c.tree, c.submodulePaths, err = readCommit(ctx, c.store, commit, r.client.limits.Tree)
		return err
	})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (r *Remote) commitNotFoundError(want plumbing.Hash) error {
	return newError(CommitNotFound,
		"the repository at %s has no commit %s that is reachable from a branch or tag, or does not serve it: push "+
			"it, or use another commit",
		r.maskedURL, want)
}

// newRequest returns a request with the capabilities for the response, but without the
// wanted objects.
func (r *Remote) newRequest() *packp.UploadPackRequest {
	req := packp.NewUploadPackRequest()
	wanted := []capability.Capability{capability.Sideband64k, capability.OFSDelta, capability.NoProgress}
	if !r.capabilities.Supports(capability.Sideband64k) {
		wanted[0] = capability.Sideband
	}
	for _, one := range wanted {
		if r.capabilities.Supports(one) {
			_ = req.Capabilities.Set(one)
		}
	}
	if r.capabilities.Supports(capability.Agent) {
		_ = req.Capabilities.Set(capability.Agent, capability.DefaultAgent())
	}
	return req
}

// fetchRequest requests one commit if the server allows that, and everything otherwise.
func (r *Remote) fetchRequest(want plumbing.Hash) *packp.UploadPackRequest {
	req := r.newRequest()
	// Some servers require clients to support negotiation. This client has no objects yet, so
	// it never negotiates.
	if r.capabilities.Supports(capability.MultiACK) {
		_ = req.Capabilities.Set(capability.MultiACK)
	}
	if !r.hasTip(want) && !r.capabilities.Supports(capability.AllowReachableSHA1InWant) {
		req.Wants = r.tips()
		return req
	}
	req.Wants = []plumbing.Hash{want}
	if r.capabilities.Supports(capability.Shallow) {
		_ = req.Capabilities.Set(capability.Shallow)
		req.Depth = packp.DepthCommits(1)
	}
	return req
}

// fetchObjects downloads the pack of a request and stores its objects in the directory dir. If
// have is not zero, the pack omits the objects that are reachable from the commit have.
func (r *Remote) fetchObjects(ctx context.Context, req *packp.UploadPackRequest, have plumbing.Hash,
	dir string) (*objectStore, error) {
	name := filepath.Join(dir, "pack")
	if err := r.download(ctx, req, have, name); err != nil {
		return nil, err
	}
	st, err := loadPack(ctx, name, filepath.Join(dir, "objects"), r.client.limits)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil {
		_ = st.close()
		return nil, wrapError(artifact.Storage, err, "removing the pack")
	}
	return st, nil
}

// download stores the pack of a request in a file.
func (r *Remote) download(ctx context.Context, req *packp.UploadPackRequest, have plumbing.Hash, name string) error {
	var body bytes.Buffer
	lines := pktline.NewEncoder(&body)
	err := req.UploadRequest.Encode(&body)
	if !have.IsZero() {
		err = errors.Join(err, lines.Encodef("have %s\n", have))
	}
	if err := errors.Join(err, lines.EncodeString("done\n")); err != nil {
		return wrapError(OperationFailed, err, "encoding the fetch request")
	}
	answer, err := r.transport.send(ctx, body.Bytes())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	limit := r.client.limits.PackBytes
	// The response has a few lines before the pack, and frames around its parts, so it is
	// slightly larger than the pack.
	bounded := &io.LimitedReader{R: answer, N: limit + limit/64 + 1<<20}
	err = storePack(req, bounded, name)
	// A response that was truncated at the limit can look complete.
	if bounded.N <= 0 {
		return treeError(artifact.TooLarge, "", "the response of the server has more than the %d bytes allowed; if "+
			"the server does not serve "+
			"single commits (uploadpack.allowReachableSHA1InWant), it sends all history", limit)
	}
	if err != nil {
		return r.packError(ctx, req.Wants[0], err)
	}
	return nil
}

// diskError is a failure of the local disk.
type diskError struct{ error }

func (e diskError) Unwrap() error { return e.error }

// storePack stores the pack of a response in a file.
func storePack(req *packp.UploadPackRequest, body io.Reader, name string) error {
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
	w := &artifact.TrackingWriter{W: file}
	_, err = io.Copy(w, pack)
	if cerr := file.Close(); err == nil {
		w.Err = cerr
	}
	if w.Err != nil {
		return diskError{w.Err}
	}
	return err
}

func (r *Remote) packError(ctx context.Context, want plumbing.Hash, err error) error {
	if diskErr, ok := errors.AsType[diskError](err); ok {
		return wrapError(artifact.Storage, diskErr.error, "storing the response of the server")
	}
	if ctx.Err() != nil {
		return r.connectionError(ctx, err)
	}
	if gitErr, ok := errors.AsType[*Error](err); ok {
		return gitErr
	}
	// A server refuses a well-formed request only with "not our ref".
	if gitErr, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		if r.hasTip(want) {
			return newError(OperationFailed, "the server of %s no longer serves commit %s: %s", r.maskedURL, want,
				r.quoteServerText(gitErr.Text))
		}
		return r.commitNotFoundError(want)
	}
	return wrapError(OperationFailed, err, "the response of %s is incomplete or can't be read", r.maskedURL)
}
