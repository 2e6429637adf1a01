package catalog

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

//go:embed all:stacks
var shipped embed.FS

const root = "stacks"

// Error says that the catalogue has no such stack, or not in that version.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

// Options of a Catalog.
type Options struct {
	// Limits of one stack.
	Limits artifact.Limits
	// URL of the repository in an OCI registry that has other versions, as
	// oci://registry/repository; empty: there are none.
	URL string
	// Insecure allows plain http for it.
	Insecure bool
}

// Catalog offers stacks as artifacts. Many callers may use it at once.
type Catalog struct {
	opts     Options
	registry *oci.Client

	mu     sync.Mutex
	packed map[string]packed // by path
}

type packed struct {
	digest string
	// tarball of what is shipped; of others only the digest is kept.
	tarball []byte
	// from is the digest in the registry.
	from string
}

// New returns a Catalog.
func New(o Options) *Catalog {
	return &Catalog{opts: o, registry: oci.NewClient(oci.Options{Limits: o.Limits}), packed: map[string]packed{}}
}

// Names of the stacks that are shipped.
func Names() []string { return folders(root) }

// Versions of a stack that are shipped, the newest first.
func Versions(stack string) []string {
	out := folders(root + "/" + stack)
	slices.SortFunc(out, func(a, b string) int {
		x, errX := semver.StrictNewVersion(a)
		y, errY := semver.StrictNewVersion(b)
		if errX != nil || errY != nil {
			return strings.Compare(b, a)
		}
		return y.Compare(x)
	})
	return out
}

func folders(dir string) (out []string) {
	entries, err := shipped.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// FS has the files of a stack that is shipped. The error is an *Error.
func FS(stack, version string) (fs.FS, error) {
	if !slices.Contains(Names(), stack) {
		return nil, &Error{fmt.Sprintf("the catalogue has no stack %q; it has %s", stack, strings.Join(Names(), ", "))}
	}
	if !slices.Contains(Versions(stack), version) {
		return nil, &Error{fmt.Sprintf("the catalogue has no version %q of stack %q; it has %s", version, stack, strings.Join(Versions(stack), ", "))}
	}
	return fs.Sub(shipped, root+"/"+stack+"/"+version)
}

// Artifact is a stack in a version, to be fetched with an artifact.Fetcher. What
// is not shipped is looked for in the registry, if there is one. The error is an
// *Error if there is no such thing, else one of package oci or artifact.
func (c *Catalog) Artifact(ctx context.Context, stack, version string) (artifact.Artifact, error) {
	path := "/" + stack + "/" + version
	c.mu.Lock()
	p, known := c.packed[path]
	c.mu.Unlock()
	if !known {
		var err error
		if p, err = c.pack(ctx, stack, version); err != nil {
			return artifact.Artifact{}, err
		}
		c.mu.Lock()
		c.packed[path] = p
		c.mu.Unlock()
	}
	return artifact.Artifact{URL: "http://catalog" + path, Revision: stack + "@" + version, Digest: p.digest, Client: &http.Client{Transport: c}}, nil
}

func (c *Catalog) pack(ctx context.Context, stack, version string) (packed, error) {
	var buf bytes.Buffer
	files, err := FS(stack, version)
	if err == nil {
		done, err := artifact.Pack(ctx, &buf, files, artifact.PackOptions{Limits: c.opts.Limits})
		return packed{digest: done.Digest, tarball: buf.Bytes()}, err
	}
	if c.opts.URL == "" {
		return packed{}, err
	}
	from, err := c.resolve(ctx, stack, version, err)
	if err != nil {
		return packed{}, err
	}
	digest, err := c.pull(ctx, &buf, stack, from)
	return packed{digest: digest, from: from}, err
}

// resolve finds a version in the registry. Its absence there, too, is that of the
// catalogue.
func (c *Catalog) resolve(ctx context.Context, stack, version string, absent error) (string, error) {
	r, err := c.repository(stack)
	if err != nil {
		return "", err
	}
	defer r.Close()
	target, err := r.Resolve(ctx, oci.Ref{Tag: version})
	if oci.NotFound(err) {
		return "", &Error{fmt.Sprintf("%v; and %s has no tag %q: %v", absent, r, version, err)}
	}
	return target.Digest, err
}

// pull writes the tarball of what the registry has.
func (c *Catalog) pull(ctx context.Context, w io.Writer, stack, digest string) (string, error) {
	r, err := c.repository(stack)
	if err != nil {
		return "", err
	}
	defer r.Close()
	tree, err := r.Fetch(ctx, digest, oci.Selector{})
	if err != nil {
		return "", err
	}
	done, err := artifact.Pack(ctx, w, tree.FS(), artifact.PackOptions{Limits: c.opts.Limits})
	if cerr := tree.Close(); err == nil {
		err = cerr
	}
	return done.Digest, err
}

func (c *Catalog) repository(stack string) (*oci.Repository, error) {
	return c.registry.Repository(strings.TrimRight(c.opts.URL, "/")+"/"+stack, oci.Access{Insecure: c.opts.Insecure})
}

// RoundTrip implements http.RoundTripper: it answers within the process, so that
// a stack of the catalogue passes the same checks and the same cache as any other
// artifact.
func (c *Catalog) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	p, known := c.packed[req.URL.Path]
	c.mu.Unlock()
	answer := &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req, Header: http.Header{}}
	if !known {
		answer.StatusCode, answer.Body = http.StatusNotFound, http.NoBody
		return answer, nil
	}
	tarball := p.tarball
	if tarball == nil {
		stack, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		var buf bytes.Buffer
		if _, err := c.pull(req.Context(), &buf, stack, p.from); err != nil {
			return nil, err
		}
		tarball = buf.Bytes()
	}
	answer.ContentLength, answer.Body = int64(len(tarball)), io.NopCloser(bytes.NewReader(tarball))
	return answer, nil
}
