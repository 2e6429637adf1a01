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

// DefaultBranch is followed by whoever names neither branch nor tag nor commit.
const DefaultBranch = "main"

const (
	branchSpace = "refs/heads/"
	tagSpace    = "refs/tags/"
)

// Options of a Client. Zero fields take the defaults.
type Options struct {
	// HTTP is the client to talk with; artifact.NewHTTPClient when nil.
	HTTP *http.Client
	// Limits of one repository.
	Limits Limits
	// TempDir holds packs while they are worked on, and is made if need be; the
	// system's when empty.
	TempDir string
}

// Client reads repositories, and commits to them. Many callers may use it at once.
type Client struct {
	http   *http.Client
	limits Limits
	temp   string
}

// NewClient makes a client.
func NewClient(o Options) *Client {
	c := &Client{http: o.HTTP, limits: o.Limits.WithDefaults(), temp: o.TempDir}
	if c.http == nil {
		c.http = artifact.NewHTTPClient()
	}
	return c
}

// work gives the folder for what is worked on.
func (c *Client) work() (string, error) {
	if c.temp == "" {
		return "", nil
	}
	return c.temp, os.MkdirAll(c.temp, 0o700)
}

// Remote is a repository as its server described it.
type Remote struct {
	client *Client
	wire   wire
	masked string
	// secrets that no error may hold.
	secrets []string
	refs    map[string]plumbing.Hash
	// peeled are the commits that annotated tags lead to.
	peeled map[string]plumbing.Hash
	caps   *capability.List
}

// List asks a server for the branches and tags of a repository. It is one
// request and gets no content. The error is an *Error.
func (c *Client) List(ctx context.Context, repo Repository) (*Remote, error) {
	w, u, err := c.wireTo(repo, uploadPack)
	if err != nil {
		return nil, err
	}
	return c.list(ctx, repo, w, u)
}

func (c *Client) list(ctx context.Context, repo Repository, w wire, u *url.URL) (_ *Remote, err error) {
	r := &Remote{client: c, wire: w, masked: artifact.MaskURL(repo.URL), secrets: repo.Access.secrets(u)}
	defer func() { err = r.discreet(err) }()
	body, err := w.list(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	if err := guard(func() error { return r.read(ctx, body) }); err != nil {
		return nil, err
	}
	return r, nil
}

// discreet sees to it that an error tells no secret.
func (r *Remote) discreet(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.secrets = r.secrets
		return e
	}
	return err
}

func (r *Remote) read(ctx context.Context, body io.Reader) error {
	limit := r.client.limits.RefBytes
	bounded := &io.LimitedReader{R: body, N: limit + 1}
	adv := packp.NewAdvRefs()
	err := adv.Decode(bounded)
	if said, ok := errors.AsType[*Error](err); ok {
		return said
	}
	switch {
	case bounded.N <= 0:
		return fail(Unsupported, "%s has so many branches and tags that their list has more than %d bytes", r.masked, limit)
	case errors.Is(err, packp.ErrEmptyAdvRefs) || (err == nil && adv.IsEmpty()):
		return fail(RepositoryEmpty, "the repository at %s has no commit yet: push one", r.masked)
	case err != nil && ctx.Err() != nil:
		return unreachable(ctx, err, r.masked)
	case err != nil:
		return r.badList(err)
	}
	r.refs, r.peeled, r.caps = adv.References, adv.Peeled, adv.Capabilities
	for _, format := range r.caps.Get(capability.ObjectFormat) {
		if format != "sha1" {
			return r.badFormat()
		}
	}
	return nil
}

// skipList reads over a list of branches and tags.
func skipList(from io.Reader, limit int64) error {
	return guard(func() error { return packp.NewAdvRefs().Decode(io.LimitReader(from, limit)) })
}

func (r *Remote) badFormat() error {
	return fail(Unsupported, "the repository at %s names its objects by another hash than SHA-1, which is not supported", r.masked)
}

func (r *Remote) badList(err error) error {
	if said, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		return fail(OperationFailed, "the server of %s refuses: %s", r.masked, saying(said.Text, r.secrets))
	}
	// The line that could not be read for its longer hash says why.
	if bad, ok := errors.AsType[*packp.ErrUnexpectedData](err); ok && bytes.Contains(bad.Data, []byte("object-format=sha256")) {
		return r.badFormat()
	}
	return failBy(OperationFailed, err, "the list of branches of %s can't be read", r.masked)
}

// guard turns a panic over what a server sent into an error: a hostile
// repository costs its own source, not the process.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = failBy(OperationFailed, &PanicError{Value: p, Stack: debug.Stack()}, "what the server sent can't be read")
		}
	}()
	return f()
}

// PanicError is a panic over what a server sent.
type PanicError struct {
	Value any
	// Stack is for a log; the message does not hold it.
	Stack []byte
}

// Error names the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %.200v", e.Value) }
