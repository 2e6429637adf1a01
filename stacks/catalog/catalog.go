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
var shippedFS embed.FS

const root = "stacks"

// NotFoundError means that the catalog does not have the stack or the version.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }

// Options configure a Catalog.
type Options struct {
	// Limits apply to each stack.
	Limits artifact.Limits
	// URL is the OCI repository with other versions, as oci://registry/repository. If it is empty,
	// there are no other versions.
	URL string
	// Insecure allows plain HTTP for URL.
	Insecure bool
}

// Catalog provides stacks as artifacts. It is safe for concurrent use.
type Catalog struct {
	opts     Options
	registry *oci.Client

	mu           sync.Mutex
	packedStacks map[string]packedStack // by URL path
}

type packedStack struct {
	digest string
	// tarball is nil for stacks that are not shipped: they are pulled again on each request.
	tarball []byte
	// registryDigest is the digest in the registry; empty for shipped stacks.
	registryDigest string
}

// New returns a Catalog.
func New(o Options) *Catalog {
	return &Catalog{opts: o, registry: oci.NewClient(oci.Options{Limits: o.Limits}),
		packedStacks: map[string]packedStack{}}
}

// Names returns the names of the shipped stacks.
func Names() []string { return subfolders(root) }

// Versions returns the shipped versions of a stack, newest first.
func Versions(stack string) []string {
	out := subfolders(root + "/" + stack)
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

func subfolders(dir string) (out []string) {
	entries, err := shippedFS.ReadDir(dir)
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

// FS returns the files of a shipped stack. The error is a *NotFoundError.
func FS(stack, version string) (fs.FS, error) {
	if !slices.Contains(Names(), stack) {
		return nil, &NotFoundError{fmt.Sprintf("the catalog has no stack %q: want one of %s", stack,
			strings.Join(Names(), ", "))}
	}
	if !slices.Contains(Versions(stack), version) {
		return nil, &NotFoundError{fmt.Sprintf("the catalog has no version %q of stack %q: want one of %s", version,
			stack, strings.Join(Versions(stack), ", "))}
	}
	return fs.Sub(shippedFS, root+"/"+stack+"/"+version)
}

// Artifact returns one version of a stack, to be fetched with an artifact.Fetcher. If the version
// is not shipped, Artifact resolves it in the registry, if Options.URL is set. The error is a
// *NotFoundError, or one of package oci or artifact.
func (c *Catalog) Artifact(ctx context.Context, stack, version string) (artifact.Artifact, error) {
	path := "/" + stack + "/" + version
	c.mu.Lock()
	p, known := c.packedStacks[path]
	c.mu.Unlock()
	if !known {
		var err error
		if p, err = c.pack(ctx, stack, version); err != nil {
			return artifact.Artifact{}, err
		}
		c.mu.Lock()
		c.packedStacks[path] = p
		c.mu.Unlock()
	}
	return artifact.Artifact{URL: "http://catalog" + path, Revision: stack + "@" + version, Digest: p.digest,
		Client: &http.Client{Transport: c}}, nil
}

func (c *Catalog) pack(ctx context.Context, stack, version string) (packedStack, error) {
	var buf bytes.Buffer
	files, absent := FS(stack, version)
	if absent == nil {
		result, err := artifact.Pack(ctx, &buf, files, artifact.PackOptions{Limits: c.opts.Limits})
		return packedStack{digest: result.Digest, tarball: buf.Bytes()}, err
	}
	if c.opts.URL == "" {
		return packedStack{}, absent
	}
	r, err := c.repository(stack)
	if err != nil {
		return packedStack{}, err
	}
	defer r.Close()
	target, err := r.Resolve(ctx, oci.Ref{Tag: version})
	if oci.IsNotFound(err) {
		err = &NotFoundError{fmt.Sprintf("%v; %s has no tag %q: %v", absent, r, version, err)}
	}
	if err != nil {
		return packedStack{}, err
	}
	digest, err := c.pull(ctx, &buf, r, target.Digest)
	return packedStack{digest: digest, registryDigest: target.Digest}, err
}

// pull writes the tarball of a stack in the registry to w, and returns its digest.
func (c *Catalog) pull(ctx context.Context, w io.Writer, r *oci.Repository, digest string) (string, error) {
	tree, err := r.Fetch(ctx, digest, "")
	if err != nil {
		return "", err
	}
	result, err := artifact.Pack(ctx, w, tree.FS(), artifact.PackOptions{Limits: c.opts.Limits})
	if cerr := tree.Close(); err == nil {
		err = cerr
	}
	return result.Digest, err
}

func (c *Catalog) repository(stack string) (*oci.Repository, error) {
	return c.registry.Repository(strings.TrimRight(c.opts.URL, "/")+"/"+stack, oci.Access{Insecure: c.opts.Insecure})
}

// RoundTrip implements http.RoundTripper. It answers within the process, so that stacks of the
// catalog use the same checks and the same cache as other artifacts.
func (c *Catalog) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	p, known := c.packedStacks[req.URL.Path]
	c.mu.Unlock()
	response := &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{}}
	if !known {
		response.StatusCode, response.Body = http.StatusNotFound, http.NoBody
		return response, nil
	}
	tarball := p.tarball
	if tarball == nil {
		stack, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		r, err := c.repository(stack)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		var buf bytes.Buffer
		if _, err := c.pull(req.Context(), &buf, r, p.registryDigest); err != nil {
			return nil, err
		}
		tarball = buf.Bytes()
	}
	response.ContentLength, response.Body = int64(len(tarball)), io.NopCloser(bytes.NewReader(tarball))
	return response, nil
}
