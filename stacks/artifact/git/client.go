package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"

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
	// HTTP is the client for HTTP requests; artifact.NewHTTPClient when nil.
	HTTP *http.Client
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
	c := &Client{http: o.HTTP, limits: o.Limits.WithDefaults(), tempDir: o.TempDir}
	if c.http == nil {
		c.http = artifact.NewHTTPClient()
	}
	return c
}

// workDir creates and returns the directory for temporary files, empty for the system's.
func (c *Client) workDir() (string, error) {
	if c.tempDir == "" {
		return "", nil
	}
	return c.tempDir, os.MkdirAll(c.tempDir, 0o700)
}

// Remote holds the branches and tags of a repository at the time of List.
type Remote struct {
	client    *Client
	transport transport
	maskedURL string
	// secrets must not appear in errors.
	secrets []string
	refs    map[string]plumbing.Hash
	// peeled maps annotated tags to their commits.
	peeled       map[string]plumbing.Hash
	capabilities *capability.List
}

// List lists the branches and tags of a repository. It makes one request and downloads no
// content. The error is an *Error.
func (c *Client) List(ctx context.Context, repo Repository) (*Remote, error) {
	w, u, err := c.newTransport(repo, uploadPack)
	if err != nil {
		return nil, err
	}
	return c.list(ctx, repo, w, u)
}

func (c *Client) list(ctx context.Context, repo Repository, w transport, u *url.URL) (_ *Remote, err error) {
	r := &Remote{client: c, transport: w, maskedURL: artifact.MaskURL(repo.URL), secrets: repo.Access.secrets(u)}
	defer func() { err = r.redactError(err) }()
	body, err := w.openRefs(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	if err := recoverPanic(func() error { return r.readRefs(ctx, body) }); err != nil {
		return nil, err
	}
	return r, nil
}

// redactError makes an error mask the secrets of the repository.
func (r *Remote) redactError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.secrets = r.secrets
		return e
	}
	return err
}

func (r *Remote) readRefs(ctx context.Context, body io.Reader) error {
	limit := r.client.limits.RefBytes
	bounded := &io.LimitedReader{R: body, N: limit + 1}
	refs := packp.NewAdvRefs()
	err := refs.Decode(bounded)
	if serverErr, ok := errors.AsType[*Error](err); ok {
		return serverErr
	}
	switch {
	case bounded.N <= 0:
		return newError(Unsupported, "the list of branches and tags of %s has more than the %d bytes allowed", r.maskedURL, limit)
	case errors.Is(err, packp.ErrEmptyAdvRefs) || (err == nil && refs.IsEmpty()):
		return newError(RepositoryEmpty, "the repository at %s has no commit yet: push one", r.maskedURL)
	case err != nil && ctx.Err() != nil:
		return connectionError(ctx, err, r.maskedURL)
	case err != nil:
		return r.refListError(err)
	}
	r.refs, r.peeled, r.capabilities = refs.References, refs.Peeled, refs.Capabilities
	for _, format := range r.capabilities.Get(capability.ObjectFormat) {
		if format != "sha1" {
			return r.objectFormatError()
		}
	}
	return nil
}

// skipRefs reads and ignores a list of branches and tags.
func skipRefs(from io.Reader, limit int64) error {
	return recoverPanic(func() error { return packp.NewAdvRefs().Decode(io.LimitReader(from, limit)) })
}

func (r *Remote) objectFormatError() error {
	return newError(Unsupported, "the repository at %s uses an object format other than SHA-1, which is not supported", r.maskedURL)
}

func (r *Remote) refListError(err error) error {
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		return newError(OperationFailed, "the server of %s refused the request: %s", r.maskedURL, quoteServerText(line.Text, r.secrets))
	}
	// A list with longer hashes can't be parsed; its first line names the object format.
	if unexpected, ok := errors.AsType[*packp.ErrUnexpectedData](err); ok && bytes.Contains(unexpected.Data, []byte("object-format=sha256")) {
		return r.objectFormatError()
	}
	return wrapError(OperationFailed, err, "the list of branches of %s can't be read", r.maskedURL)
}

// recoverPanic calls f and returns a panic as an error, so that content of a hostile server
// affects one source and not the process.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = wrapError(OperationFailed, &PanicError{Value: p, Stack: debug.Stack()}, "the response of the server can't be read")
		}
	}()
	return f()
}

// PanicError reports a panic while content of a server was read.
type PanicError struct {
	Value any
	// Stack is for logs; the message does not contain it.
	Stack []byte
}

// Error returns the value of the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %.200v", e.Value) }
