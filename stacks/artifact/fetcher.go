package artifact

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Artifact identifies an artifact: its URL and the digest that it must have.
type Artifact struct {
	// URL of the tarball, http or https.
	URL string
	// Revision is the human-readable version, such as main@sha1:<commit>. It does not
	// affect fetching.
	Revision string
	// Digest of the tarball, as sha256:<hex>.
	Digest string
	// Client fetches the artifact, for example with credentials; the Fetcher's client
	// when nil.
	Client *http.Client
}

// Tree is an unpacked artifact. Several callers share it and must not write to it. It
// stays on disk until Release.
type Tree struct {
	// Root is the directory that holds the files.
	Root string
	// Revision and Digest of the artifact.
	Revision, Digest string

	once    sync.Once
	release func()
}

// Release returns the lease of the tree; the cache may remove Root afterwards. Further
// calls do nothing.
func (t *Tree) Release() { t.once.Do(t.release) }

// Options configures a Fetcher. Zero fields take the defaults.
type Options struct {
	// Dir is the cache directory. Only one process may use it.
	Dir string
	// CacheBytes bounds the disk space of cached trees; 1 GiB when zero. Only unused trees
	// are evicted, so trees in use and trees being unpacked can exceed it.
	CacheBytes int64
	// Limits of one artifact.
	Limits Limits
	// Client fetches artifacts that have no client of their own; a client of
	// NewHTTPClientWith when nil.
	Client *http.Client
	// Attempts is the number of requests before a server counts as unreachable; 3 when zero.
	Attempts int
	// Backoff is the time before the second attempt; it doubles before each further
	// attempt. 250ms when zero.
	Backoff time.Duration
	// Timeout bounds one download attempt and, separately, the unpacking; DefaultTimeout
	// when zero.
	Timeout time.Duration
	// ResponseHeaderTimeout is how long a server may take to send response headers, unless
	// Client has its own timeout; 10 s when zero. A URL that timed out is not requested
	// again for the same duration, except for artifacts with their own client.
	ResponseHeaderTimeout time.Duration
}

// Defaults of Options.
const (
	DefaultTimeout               = 2 * time.Minute
	DefaultResponseHeaderTimeout = 10 * time.Second
)

// Fetcher downloads artifacts and caches their trees. It is safe for concurrent use.
type Fetcher struct {
	cache        *cache
	client       *http.Client
	limits       Limits
	attempts     int
	backoff      time.Duration
	timeout      time.Duration
	unresponsive unresponsiveURLs

	mu    sync.Mutex
	calls map[string]*fetchCall
}

// fetchCall is a fetch in progress that other callers can wait for.
type fetchCall struct {
	artifact Artifact
	// cacheOnly is true if the call looks in the cache and does not download.
	cacheOnly bool
	done      chan struct{}
	// err is also nil if the call ended only because the context of its caller was done.
	err error
}

// NewFetcher opens the cache in o.Dir.
func NewFetcher(o Options) (*Fetcher, error) {
	c, err := openCache(o.Dir, cmp.Or(o.CacheBytes, 1<<30))
	if err != nil {
		return nil, err
	}
	f := &Fetcher{
		cache: c, client: o.Client, limits: o.Limits.WithDefaults(), calls: map[string]*fetchCall{},
		attempts: cmp.Or(o.Attempts, 3),
		backoff:  cmp.Or(o.Backoff, 250*time.Millisecond),
		timeout:  cmp.Or(o.Timeout, DefaultTimeout),
		unresponsive: unresponsiveURLs{
			retryAfter: cmp.Or(o.ResponseHeaderTimeout, DefaultResponseHeaderTimeout),
			failures:   map[string]failure{},
		},
	}
	if f.client == nil {
		f.client = NewHTTPClientWith(ClientOptions{ResponseHeaderTimeout: f.unresponsive.retryAfter})
	}
	return f, nil
}

// Fetch returns the tree of an artifact. It downloads the artifact only if no earlier
// call did. Concurrent calls for one digest share one download and its failure. The
// caller must release the tree. The error is an *Error.
func (f *Fetcher) Fetch(ctx context.Context, a Artifact) (*Tree, error) {
	return f.fetch(ctx, a, false)
}

// Cached returns the tree of a digest if it is in the cache, and a NotFound error
// otherwise. It makes no request.
func (f *Fetcher) Cached(ctx context.Context, digest string) (*Tree, error) {
	return f.fetch(ctx, Artifact{Digest: digest}, true)
}

func (f *Fetcher) fetch(ctx context.Context, a Artifact, cacheOnly bool) (*Tree, error) {
	sum, err := ParseDigest(a.Digest)
	if err != nil {
		return nil, err
	}
	for {
		if f.cache.lease(sum) {
			return f.newTree(sum, a), nil
		}
		call, leader := f.joinCall(sum, a, cacheOnly)
		if leader {
			if err := f.runCall(ctx, call, sum); err != nil {
				return nil, err
			}
			return f.newTree(sum, a), nil
		}
		select {
		case <-ctx.Done():
			return nil, wrapError(Unreachable, context.Cause(ctx), "interrupted while waiting for the download")
		case <-call.done:
		}
		if call.err != nil && call.artifact.URL == a.URL && call.artifact.Client == a.Client &&
			call.cacheOnly == cacheOnly {
			return nil, call.err
		}
	}
}

func (f *Fetcher) newTree(sum string, a Artifact) *Tree {
	return &Tree{Root: f.cache.root(sum), Revision: a.Revision, Digest: a.Digest,
		release: func() { f.cache.release(sum) }}
}

func (f *Fetcher) joinCall(sum string, a Artifact, cacheOnly bool) (*fetchCall, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call := f.calls[sum]; call != nil {
		return call, false
	}
	call := &fetchCall{artifact: a, cacheOnly: cacheOnly, done: make(chan struct{})}
	f.calls[sum] = call
	return call, true
}

// runCall leases the tree, after downloading it if necessary, and wakes the waiting callers.
func (f *Fetcher) runCall(ctx context.Context, call *fetchCall, sum string) (err error) {
	defer func() {
		// Waiting callers have their own contexts: the end of this one is not their failure.
		if ctx.Err() == nil {
			call.err = err
		}
		f.mu.Lock()
		delete(f.calls, sum)
		f.mu.Unlock()
		close(call.done)
	}()
	found, err := f.cache.checkAndLease(ctx, sum)
	if found || err != nil {
		return err
	}
	if call.cacheOnly {
		return newError(NotFound, "", "the artifact is not in the cache")
	}
	return f.downloadAndUnpack(ctx, call.artifact, sum)
}

func (f *Fetcher) downloadAndUnpack(ctx context.Context, a Artifact, sum string) error {
	temp, err := os.MkdirTemp(f.cache.dir, tempPrefix)
	if err != nil {
		return wrapError(Storage, err, "creating a directory for the download")
	}
	// Does nothing after the directory was moved into the cache.
	defer func() { _ = os.RemoveAll(temp) }()

	name, err := f.download(ctx, temp, a, sum)
	if err != nil {
		return err
	}
	tarball, err := os.Open(name)
	if err != nil {
		return wrapError(Storage, err, "opening the download")
	}
	defer func() { _ = tarball.Close() }()
	root := filepath.Join(temp, treeName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return wrapError(Storage, err, "creating a directory for the tree")
	}
	unpackCtx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	size, err := Unpack(unpackCtx, tarball, root, f.limits)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return wrapError(Storage, err, "removing the download")
	}
	return storageError(f.cache.add(temp, sum, size))
}
