package chart

import (
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

// DefaultIndexBytes is the largest index.yaml that is read.
const DefaultIndexBytes = 32 << 20

// DefaultCacheBytes bounds the cache of charts.
const DefaultCacheBytes = 256 << 20

// Options of a Fetcher. Zero fields take the defaults.
type Options struct {
	// Dir holds the cache. One process owns it.
	Dir string
	// CacheBytes is how much room charts may take that nobody uses.
	CacheBytes int64
	// Limits of one archive.
	Limits artifact.Limits
	// IndexBytes is the largest index.yaml that is read.
	IndexBytes int64
	// Key tells credentials apart on disk without telling them.
	Key []byte
	// Timeout of finding a chart in its repository, of one attempt to download it, and
	// of unpacking it; artifact.DefaultTimeout when zero.
	Timeout time.Duration
	// Attempts to download an archive, and the first pause between two; as in artifact.
	Attempts int
	Backoff  time.Duration
}

// Fetcher gets charts of repositories. Many callers may use it at once.
type Fetcher struct {
	trees      *artifact.Fetcher
	records    *records
	key        []byte
	limits     artifact.Limits
	indexBytes int64
	timeout    time.Duration
	reading    chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is a chart that is being fetched, which others wait for.
type flight struct {
	done chan struct{}
	// err is nil, too, when it ended only because its caller gave up.
	err error
}

// found is where a chart is and what it must be.
type found struct {
	digest string
	// manifest in a registry that names it.
	manifest string
	// url of the archive, file what it is called, client what to get it with.
	url, file string
	client    *http.Client
	// provenance gets its signature, if there is one.
	provenance func(ctx context.Context) (data []byte, there bool, err error)
}

// NewFetcher opens the cache in o.Dir.
func NewFetcher(o Options) (*Fetcher, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.IndexBytes == 0 {
		o.IndexBytes = DefaultIndexBytes
	}
	if o.Timeout == 0 {
		o.Timeout = artifact.DefaultTimeout
	}
	trees, err := artifact.NewFetcher(artifact.Options{Dir: filepath.Join(o.Dir, "unpacked"), CacheBytes: o.CacheBytes,
		Limits: o.Limits, Attempts: o.Attempts, Backoff: o.Backoff, Timeout: o.Timeout})
	if err != nil {
		return nil, err
	}
	records, err := openRecords(filepath.Join(o.Dir, "resolved"))
	if err != nil {
		return nil, fmt.Errorf("cache of charts: %w", err)
	}
	return &Fetcher{trees: trees, records: records, key: o.Key, limits: o.Limits, indexBytes: o.IndexBytes, timeout: o.Timeout,
		reading: make(chan struct{}, 1), flights: map[string]*flight{}}, nil
}

// Fetch gives a chart, from the cache if it was resolved before with the same access.
// Calls for the same at the same time share one download, and its failure. access is
// nil for none. The caller calls release when it is done. The error is an *Error.
func (f *Fetcher) Fetch(ctx context.Context, ref stacks.ChartRef, access *Access) (chart stacks.FetchedChart, release func(), err error) {
	if access == nil {
		access = &Access{}
	}
	key := f.identify(ref, access)
	for {
		tree, err := f.cached(ctx, key)
		if err != nil {
			return chart, nil, about(ref, err)
		}
		if tree != nil {
			return fetched(ref, tree), tree.Release, nil
		}
		fl, mine := f.join(key)
		if mine {
			tree, err := f.lead(ctx, fl, key, ref, access)
			if err != nil {
				return chart, nil, about(ref, err)
			}
			return fetched(ref, tree), tree.Release, nil
		}
		select {
		case <-ctx.Done():
			return chart, nil, about(ref, retry(Unreachable, context.Cause(ctx), "interrupted while waiting for the download"))
		case <-fl.done:
		}
		if fl.err != nil {
			return chart, nil, about(ref, fl.err)
		}
	}
}

func fetched(ref stacks.ChartRef, tree *artifact.Tree) stacks.FetchedChart {
	ref.Digest = tree.Digest
	return stacks.FetchedChart{ChartRef: ref, Root: tree.Root}
}

// identify names everything that the outcome depends on.
func (f *Fetcher) identify(ref stacks.ChartRef, access *Access) string {
	mac := hmac.New(sha256.New, f.key)
	for _, part := range []string{"1", ref.Repository, ref.Name, ref.Version, ref.Digest, access.scope(f.key)} {
		_, _ = fmt.Fprintf(mac, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// cached is what was resolved before, if it is there still.
func (f *Fetcher) cached(ctx context.Context, key string) (*artifact.Tree, error) {
	digest, ok := f.records.get(key)
	if !ok {
		return nil, nil
	}
	tree, err := f.trees.Cached(ctx, digest)
	if e, ok := errors.AsType[*artifact.Error](err); ok && e.Reason == artifact.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, archiveError(err)
	}
	return tree, nil
}

func (f *Fetcher) join(key string) (*flight, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[key]; fl != nil {
		return fl, false
	}
	fl := &flight{done: make(chan struct{})}
	f.flights[key] = fl
	return fl, true
}

// lead gets the chart and tells those who wait.
func (f *Fetcher) lead(ctx context.Context, fl *flight, key string, ref stacks.ChartRef, access *Access) (tree *artifact.Tree, err error) {
	defer func() {
		// Whoever waits has time of their own: a caller that gave up is not their failure.
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
	client := access.client()
	defer closeIdle(client.Transport)
	at, err := f.resolve(bounded, client, ref, access)
	if err != nil {
		return nil, err
	}
	tree, err = f.trees.Fetch(ctx, artifact.Artifact{URL: at.url, Digest: at.digest, Revision: ref.Version, Client: at.client})
	if err != nil {
		return nil, archiveError(err)
	}
	f.records.put(key, at.digest)
	return tree, nil
}

// resolve finds a chart in its repository and verifies it.
func (f *Fetcher) resolve(ctx context.Context, client *http.Client, ref stacks.ChartRef, access *Access) (*found, error) {
	find := f.fromIndex
	if strings.HasPrefix(ref.Repository, "oci://") {
		find = f.fromRegistry
	}
	at, err := find(ctx, client, ref, access)
	if err != nil || access.repo.Verify == nil {
		return at, err
	}
	if access.signers != nil {
		return at, f.signed(ctx, ref, access, at.manifest)
	}
	prov, there, err := at.provenance(ctx)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, fail(Unverified, "it is not signed: there is no .prov file, and spec.charts of the install asks for one")
	}
	if err := verifyProvenance(access.keyring, prov, at.digest, at.file, ref.Name+"-"+ref.Version+".tgz"); err != nil {
		return nil, err
	}
	return at, nil
}
