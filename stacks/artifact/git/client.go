package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/ksctl/gitops/stacks/artifact"
)

// DefaultBranch is the branch that is used if no branch, tag or commit is given.
const DefaultBranch = "main"

const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// Options configures a Client. Zero fields take the defaults.
type Options struct {
	// Limits of one repository.
	Limits Limits
	// TempDir holds downloaded packs and objects, and is created if necessary; the system's
	// directory when empty.
	TempDir string
}

// Client reads repositories and commits to them. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	limits  Limits
	tempDir string
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	tempDir := cmp.Or(o.TempDir, os.TempDir())
	return &Client{http: artifact.NewHTTPClient(), limits: o.Limits.WithDefaults(), tempDir: tempDir}
}

// makeTempDir creates a directory for temporary files; content is its purpose in the error message.
func (c *Client) makeTempDir(content string) (string, error) {
	err := os.MkdirAll(c.tempDir, 0o700)
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(c.tempDir, "git-")
	}
	if err != nil {
		return "", wrapError(artifact.Storage, err, "creating a directory for the %s", content)
	}
	return dir, nil
}

// Remote holds the branches and tags of a repository at the time of List.
type Remote struct {
	endpoint
	client    *Client
	transport transport
	refs      map[string]plumbing.Hash
	// peeled maps annotated tags to their commits.
	peeled       map[string]plumbing.Hash
	capabilities *capability.List
}

// List lists the branches and tags of a repository. It makes one request and downloads no
// content. The error is an *Error.
func (c *Client) List(ctx context.Context, repo Repository) (*Remote, error) {
	w, e, err := c.newTransport(repo, uploadPack)
	if err != nil {
		return nil, err
	}
	return c.list(ctx, w, e)
}

func (c *Client) list(ctx context.Context, w transport, e endpoint) (_ *Remote, err error) {
	defer func() { err = e.redactError(err) }()
	body, err := w.openRefs(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	r := &Remote{endpoint: e, client: c, transport: w}
	if err := r.readRefs(ctx, body); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Remote) readRefs(ctx context.Context, body io.Reader) error {
	limit := r.client.limits.RefBytes
	bounded := &io.LimitedReader{R: body, N: limit + 1}
	refs, err := r.decodeRefs(ctx, bounded)
	switch {
	case bounded.N <= 0:
		return newError(Unsupported, "the list of branches and tags of %s has more than the %d bytes allowed",
			r.maskedURL, limit)
	case err != nil:
		return err
	case refs.IsEmpty():
		return newError(RepositoryEmpty, "the repository at %s has no commit yet: push one", r.maskedURL)
	}
	r.refs, r.peeled, r.capabilities = refs.References, refs.Peeled, refs.Capabilities
	for _, format := range r.capabilities.Get(capability.ObjectFormat) {
		if format != "sha1" {
			return r.objectFormatError()
		}
	}
	return nil
}

func (e *endpoint) objectFormatError() error {
	return newError(Unsupported, "the repository at %s uses an object format other than SHA-1, which is not supported",
		e.maskedURL)
}

// decodeRefs reads a list of branches and tags. It is empty if the repository has no commit.
func (e *endpoint) decodeRefs(ctx context.Context, body io.Reader) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := recoverPanic(func() error { return refs.Decode(body) })
	if err == nil || errors.Is(err, packp.ErrEmptyAdvRefs) {
		return refs, nil
	}
	if ctx.Err() != nil {
		return nil, e.connectionError(ctx, err)
	}
	if gitErr, ok := errors.AsType[*Error](err); ok {
		return nil, gitErr
	}
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		return nil, newError(OperationFailed, "the server of %s refused the request: %s", e.maskedURL,
			e.quoteServerText(line.Text))
	}
	// A list with longer hashes can't be parsed; its first line names the object format.
	if unexpected, ok := errors.AsType[*packp.ErrUnexpectedData](err); ok &&
		bytes.Contains(unexpected.Data, []byte("object-format=sha256")) {
		return nil, e.objectFormatError()
	}
	return nil, wrapError(OperationFailed, err, "the list of branches of %s can't be read", e.maskedURL)
}

// recoverPanic calls f and returns a panic as an error, so that content of a hostile server
// affects one source and not the process.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = wrapError(OperationFailed, fmt.Errorf("%w: %.200v", errPanic, p),
				"the response of the server can't be read")
		}
	}()
	return f()
}

// errPanic is the error of a panic while content of a server was read.
var errPanic = errors.New("panic")
