package chart

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// DefaultIndexBytes is the default of Options.IndexBytes.
const DefaultIndexBytes = 32 << 20

// DefaultCacheBytes is the default of Options.CacheBytes.
const DefaultCacheBytes = 256 << 20

// Options configure a Fetcher. Zero fields take the defaults.
type Options struct {
	// Dir is the directory of the cache. Only one process may use it.
	Dir string
	// CacheBytes limits the total size of cached charts that are not in use.
	CacheBytes int64
	// Limits apply to each archive.
	Limits artifact.Limits
	// IndexBytes is the maximum size of an index.yaml.
	IndexBytes int64
	// Key is the HMAC key of the names of cache files. The names depend on the credentials, and do
	// not reveal them.
	Key []byte
	// Timeout applies to each of three steps: resolving a chart in its repository, one attempt to
	// download it, and unpacking it. The default is artifact.DefaultTimeout.
	Timeout time.Duration
	// Attempts is the number of attempts to download an archive, and Backoff the first pause
	// between two; as in artifact.Options.
	Attempts int
	Backoff  time.Duration
}

// Fetcher fetches charts from repositories. It is safe for concurrent use.
type Fetcher struct {
	archives   *artifact.Fetcher
	digests    *digestCache
	key        []byte
	limits     artifact.Limits
	indexBytes int64
	timeout    time.Duration
	indexSlot  chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is a fetch in progress, which concurrent callers for the same chart wait for.
type flight struct {
	done chan struct{}
	// err is the result. It is also nil if the flight ended only because its caller was canceled.
	err error
}

// resolvedChart is the location of a chart archive, and the digest that the archive must have.
type resolvedChart struct {
	digest string
	// manifestDigest is the digest of the manifest in an OCI registry; empty for other
	// repositories.
	manifestDigest string
	// url and fileName are those of the archive; client downloads it.
	url, fileName string
	client        *http.Client
	// fetchProvenance returns the .prov file, or false if the repository has none.
	fetchProvenance func(ctx context.Context) (data []byte, there bool, err error)
}

// NewFetcher returns a Fetcher with its cache in o.Dir.
func NewFetcher(o Options) (*Fetcher, error) {
	timeout := cmp.Or(o.Timeout, artifact.DefaultTimeout)
	trees, err := artifact.NewFetcher(artifact.Options{Dir: filepath.Join(o.Dir, "unpacked"),
		CacheBytes: cmp.Or(o.CacheBytes, DefaultCacheBytes),
		Limits:     o.Limits, Attempts: o.Attempts, Backoff: o.Backoff, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	records, err := openDigestCache(filepath.Join(o.Dir, "resolved"))
	if err != nil {
		return nil, fmt.Errorf("opening the chart cache: %w", err)
	}
	return &Fetcher{archives: trees, digests: records, key: o.Key, limits: o.Limits,
		indexBytes: cmp.Or(o.IndexBytes, DefaultIndexBytes), timeout: timeout,
		indexSlot: make(chan struct{}, 1), flights: map[string]*flight{}}, nil
}

// Fetch returns a chart, from the cache if it was resolved before with the same access. Concurrent
// calls for the same chart share one download and its error. A nil access means no credentials. The
// caller calls release when it no longer uses the chart. The error is an *Error.
func (f *Fetcher) Fetch(ctx context.Context, ref stacks.ChartRef,
	access *Access) (chart stacks.FetchedChart, release func(), err error) {
	if access == nil {
		access = &Access{}
	}
	tree, err := f.fetchTree(ctx, ref, access)
	if err != nil {
		return chart, nil, withRef(ref, err)
	}
	ref.Digest = tree.Digest
	return stacks.FetchedChart{ChartRef: ref, Root: tree.Root}, tree.Release, nil
}

// fetchTree returns the unpacked chart, from the cache or from the flight that fetches it.
func (f *Fetcher) fetchTree(ctx context.Context, ref stacks.ChartRef, access *Access) (*artifact.Tree, error) {
	key := f.cacheKey(ref, access)
	for {
		tree, err := f.cached(ctx, key)
		if tree != nil || err != nil {
			return tree, err
		}
		fl, leader := f.joinFlight(key)
		if leader {
			return f.runFlight(ctx, fl, key, ref, access)
		}
		select {
		case <-ctx.Done():
			return nil, transientError(Unreachable, context.Cause(ctx), "interrupted while waiting for the download")
		case <-fl.done:
		}
		if fl.err != nil {
			return nil, fl.err
		}
	}
}

// cacheKey is an HMAC of everything that the resolved digest depends on.
func (f *Fetcher) cacheKey(ref stacks.ChartRef, access *Access) string {
	mac := hmac.New(sha256.New, f.key)
	for _, part := range []string{"1", ref.Repository, ref.Name, ref.Version, ref.Digest, access.fingerprint(f.key)} {
		_, _ = fmt.Fprintf(mac, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// cached returns the tree of a chart that was resolved before; nil if its digest is unknown or the
// tree was evicted.
func (f *Fetcher) cached(ctx context.Context, key string) (*artifact.Tree, error) {
	digest, ok := f.digests.get(key)
	if !ok {
		return nil, nil
	}
	tree, err := f.archives.Cached(ctx, digest)
	if e, ok := errors.AsType[*artifact.Error](err); ok && e.Reason == artifact.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, archiveError(err)
	}
	return tree, nil
}

func (f *Fetcher) joinFlight(key string) (*flight, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[key]; fl != nil {
		return fl, false
	}
	fl := &flight{done: make(chan struct{})}
	f.flights[key] = fl
	return fl, true
}

// runFlight fetches the chart and publishes the result to the callers that wait for fl.
func (f *Fetcher) runFlight(ctx context.Context, fl *flight, key string, ref stacks.ChartRef,
	access *Access) (tree *artifact.Tree, err error) {
	defer func() {
		// The callers that wait have their own contexts: the cancellation of this one is not their
		// error.
		if ctx.Err() == nil {
			fl.err = err
		}
		f.mu.Lock()
		delete(f.flights, key)
		f.mu.Unlock()
		close(fl.done)
	}()
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	client := access.httpClient()
	defer closeIdle(client.Transport)
	resolved, err := f.resolve(bounded, client, ref, access)
	if err != nil {
		return nil, err
	}
	tree, err = f.archives.Fetch(ctx,
		artifact.Artifact{URL: resolved.url, Digest: resolved.digest, Revision: ref.Version, Client: resolved.client})
	if err != nil {
		return nil, archiveError(err)
	}
	f.digests.put(key, resolved.digest)
	return tree, nil
}

// resolve finds a chart in its repository, and verifies its signature if access requires one.
func (f *Fetcher) resolve(ctx context.Context, client *http.Client, ref stacks.ChartRef,
	access *Access) (*resolvedChart, error) {
	find := f.resolveFromIndex
	if strings.HasPrefix(ref.Repository, "oci://") {
		find = f.resolveFromRegistry
	}
	resolved, err := find(ctx, client, ref, access)
	if err != nil || access.repo.Verify == nil {
		return resolved, err
	}
	if access.verifier != nil {
		return resolved, f.verifySignature(ctx, ref, access, resolved.manifestDigest)
	}
	prov, there, err := resolved.fetchProvenance(ctx)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, terminalError(Unverified,
			"the chart is not signed: the repository has no .prov file, and spec.charts of the install requires one")
	}
	if err := verifyProvenance(access.keyring, prov, resolved.digest, resolved.fileName, ref.Name+"-"+ref.Version+
		".tgz"); err != nil {
		return nil, err
	}
	return resolved, nil
}

// Render fetches the charts that a render of req needs, and calls render with them. If the values
// enable further ones, it fetches those, and calls render again. accessFor is that of FetchAll.
func (f *Fetcher) Render(ctx context.Context, req stacks.Request, accessFor func(repository string) (*Access, error),
	render func(context.Context, stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	release, err := f.FetchAll(ctx, &req, accessFor)
	if err != nil {
		return stacks.Result{}, err
	}
	defer release()
	result, err := render(ctx, req)
	missing, ok := errors.AsType[*stacks.MissingChartsError](err)
	if !ok {
		return result, err
	}
	more, releaseMore, err := f.fetchEach(ctx, missing.Charts, accessFor)
	if err != nil {
		return stacks.Result{}, err
	}
	defer releaseMore()
	req.Charts = append(req.Charts, more...)
	return render(ctx, req)
}

// FetchAll fetches the charts that stacks.RequiredCharts returns for req, and sets req.Charts.
// accessFor returns the Access for the address of a repository; a nil accessFor means no
// credentials. The caller calls release when the render is done.
func (f *Fetcher) FetchAll(ctx context.Context, req *stacks.Request,
	accessFor func(repository string) (*Access, error)) (release func(), err error) {
	refs, err := stacks.RequiredCharts(*req)
	if err != nil {
		return nil, err
	}
	req.Charts, release, err = f.fetchEach(ctx, refs, accessFor)
	return release, err
}

// fetchEach fetches charts. If there is an error, there is nothing to release.
func (f *Fetcher) fetchEach(ctx context.Context, refs []stacks.ChartRef,
	accessFor func(repository string) (*Access, error)) (charts []stacks.FetchedChart, release func(), err error) {
	var releases []func()
	release = func() {
		for _, releaseChart := range releases {
			releaseChart()
		}
	}
	for _, ref := range refs {
		var a *Access
		if accessFor != nil {
			if a, err = accessFor(ref.Repository); err != nil {
				release()
				return nil, nil, err
			}
		}
		chart, releaseChart, err := f.Fetch(ctx, ref, a)
		if err != nil {
			release()
			return nil, nil, err
		}
		releases = append(releases, releaseChart)
		charts = append(charts, chart)
	}
	return charts, release, nil
}
