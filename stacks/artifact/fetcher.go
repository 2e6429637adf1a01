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

// Artifact says what to fetch and what it must be.
type Artifact struct {
	// URL that serves the tarball, over http or https.
	URL string
	// Revision is what people call it, such as main@sha1:<commit>. It decides nothing.
	Revision string
	// Digest of the tarball, as sha256:<hex>.
	Digest string
	// Client to fetch it with, when it takes credentials; that of the Fetcher when nil.
	Client *http.Client
}

// Tree is an artifact, unpacked. It is shared: nobody writes into it. It stays
// until Release.
type Tree struct {
	// Root is the folder that holds the files.
	Root string
	// Revision and Digest of the artifact.
	Revision, Digest string

	once    sync.Once
	release func()
}

// Release gives the tree back; what is at Root may go away then. Further calls
// do nothing.
func (t *Tree) Release() { t.once.Do(t.release) }

// Options of a Fetcher. Zero fields take the defaults.
type Options struct {
	// Dir holds the cache. One process owns it.
	Dir string
	// CacheBytes is how much room trees may take that nobody uses; 1 GiB when
	// zero. Trees in use, and those being unpacked, come on top when they must.
	CacheBytes int64
	// Limits of one artifact.
	Limits Limits
	// Client to fetch with; one of NewHTTPClientWith when nil.
	Client *http.Client
	// Attempts to make before a server counts as unreachable; 3 when zero.
	Attempts int
	// Backoff is the time before the second attempt, twice as long before each
	// further one; 250ms when zero.
	Backoff time.Duration
	// Timeout of one attempt, and of unpacking what it got; DefaultTimeout when zero.
	Timeout time.Duration
	// AnswerWithin is how long a server may take to begin an answer, unless a client says;
	// 10 s when zero. One that takes longer is asked for that again as much later, but
	// by artifacts that bring their own client.
	AnswerWithin time.Duration
}

// Defaults of Options.
const (
	DefaultTimeout      = 2 * time.Minute
	DefaultAnswerWithin = 10 * time.Second
)

// Fetcher gets artifacts and keeps their trees. Many callers may use it at once.
type Fetcher struct {
	cache    *cache
	client   *http.Client
	limits   Limits
	attempts int
	backoff  time.Duration
	timeout  time.Duration
	silent   silent

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is a download under way that others wait for.
type flight struct {
	from Artifact
	// cached is true for a look into the cache alone.
	cached bool
	done   chan struct{}
	// err is nil, too, when the download ended only because its caller gave up.
	err error
}

// NewFetcher opens the cache in o.Dir.
func NewFetcher(o Options) (*Fetcher, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = 1 << 30
	}
	c, err := openCache(o.Dir, o.CacheBytes)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{cache: c, client: o.Client, limits: o.Limits.WithDefaults(), attempts: o.Attempts,
		backoff: o.Backoff, timeout: o.Timeout, flights: map[string]*flight{}}
	f.silent = silent{pause: cmp.Or(o.AnswerWithin, DefaultAnswerWithin), now: time.Now}
	if f.client == nil {
		f.client = NewHTTPClientWith(ClientOptions{AnswerWithin: f.silent.pause})
	}
	if f.attempts == 0 {
		f.attempts = 3
	}
	if f.backoff == 0 {
		f.backoff = 250 * time.Millisecond
	}
	if f.timeout == 0 {
		f.timeout = DefaultTimeout
	}
	return f, nil
}

// Fetch gives the tree of an artifact, downloading it only if no other call
// did. Calls for one digest at the same time share one download, and its
// failure. The caller releases the tree. The error is an *Error.
func (f *Fetcher) Fetch(ctx context.Context, a Artifact) (*Tree, error) {
	return f.get(ctx, a, false)
}

// Cached gives the tree of a digest if it is in the cache, and NotFound if not. It
// asks nobody.
func (f *Fetcher) Cached(ctx context.Context, digest string) (*Tree, error) {
	return f.get(ctx, Artifact{Digest: digest}, true)
}

func (f *Fetcher) get(ctx context.Context, a Artifact, cached bool) (*Tree, error) {
	sum, err := ParseDigest(a.Digest)
	if err != nil {
		return nil, err
	}
	for {
		if f.cache.lease(sum) {
			return f.tree(sum, a), nil
		}
		fl, mine := f.join(sum, a, cached)
		if mine {
			if err := f.lead(ctx, fl, sum); err != nil {
				return nil, err
			}
			return f.tree(sum, a), nil
		}
		select {
		case <-ctx.Done():
			return nil, failBy(Unreachable, context.Cause(ctx), "interrupted while waiting for the download")
		case <-fl.done:
		}
		if fl.err != nil && fl.from.URL == a.URL && fl.from.Client == a.Client && fl.cached == cached {
			return nil, fl.err
		}
	}
}

func (f *Fetcher) tree(sum string, a Artifact) *Tree {
	return &Tree{Root: f.cache.root(sum), Revision: a.Revision, Digest: a.Digest,
		release: func() { f.cache.release(sum) }}
}

func (f *Fetcher) join(sum string, a Artifact, cached bool) (*flight, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[sum]; fl != nil {
		return fl, false
	}
	fl := &flight{from: a, cached: cached, done: make(chan struct{})}
	f.flights[sum] = fl
	return fl, true
}

// lead gets the tree, leased, and tells those who wait.
func (f *Fetcher) lead(ctx context.Context, fl *flight, sum string) (err error) {
	defer func() {
		// Whoever waits has time of their own: a caller that gave up is not their failure.
		if ctx.Err() == nil {
			fl.err = err
		}
		f.mu.Lock()
		delete(f.flights, sum)
		f.mu.Unlock()
		close(fl.done)
	}()
	there, err := f.cache.adopt(ctx, sum)
	if there || err != nil {
		return err
	}
	if fl.cached {
		return fail(NotFound, "", "it is not in the cache")
	}
	return f.fill(ctx, fl.from, sum)
}

func (f *Fetcher) fill(ctx context.Context, a Artifact, sum string) error {
	temp, err := os.MkdirTemp(f.cache.dir, tempPrefix)
	if err != nil {
		return failBy(Storage, err, "making a folder for the download")
	}
	// Does nothing once the folder was moved into the cache.
	defer func() { _ = os.RemoveAll(temp) }()

	name, err := f.download(ctx, temp, a, sum)
	if err != nil {
		return err
	}
	tarball, err := os.Open(name)
	if err != nil {
		return failBy(Storage, err, "opening the download")
	}
	defer func() { _ = tarball.Close() }()
	root := filepath.Join(temp, treeName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return failBy(Storage, err, "making a folder for the tree")
	}
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	size, err := Unpack(bounded, tarball, root, f.limits)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return failBy(Storage, err, "removing the download")
	}
	return storageError(f.cache.add(temp, sum, size))
}
