package stacks

import (
	"bytes"
	"cmp"
	"compress/flate"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks/internal/source"
)

// DefaultCacheBytes is the default size of a Renderer's cache in bytes, compressed.
const DefaultCacheBytes = 64 << 20

// RendererOptions are the options of a Renderer.
type RendererOptions struct {
	// CacheBytes bounds the cached results, compressed. Defaults to DefaultCacheBytes.
	CacheBytes int64
	// Render executes a render, for example in a worker process. Defaults to the Render of a new
	// ChartCache.
	Render func(context.Context, Request) (Result, error)
	// OnRender is called after each render, but not for results from the cache. Its request has no
	// decrypted content.
	OnRender func(req Request, took time.Duration, err error)
}

// Renderer caches results by the digest of the request; a result with new generated values by that
// of the request that has them. It also reuses a result for a new revision of the source if the
// files that the render read are unchanged. It is safe for concurrent use.
type Renderer struct {
	opts RendererOptions

	mu      sync.Mutex
	entries map[string]*list.Element // of *cacheEntry, by digest
	latest  map[string]*list.Element // of *cacheEntry, the newest by base
	recent  *list.List               // of *cacheEntry, most recently used first
	bytes   int64
}

type cacheEntry struct {
	digest string
	// base is the digest of the request without the revision of the source.
	base string
	// result, without its digest and trace, and trace are compressed JSON.
	result, trace []byte
	// missing are the charts of a MissingChartsError, for which there is no result.
	missing []ChartRef
}

func (e *cacheEntry) size() int64 { return int64(len(e.result) + len(e.trace)) }

func entryOf(at *list.Element) *cacheEntry {
	e, _ := at.Value.(*cacheEntry) // the list has no other type
	return e
}

// NewRenderer returns an empty Renderer.
func NewRenderer(opts RendererOptions) *Renderer {
	opts.CacheBytes = cmp.Or(opts.CacheBytes, DefaultCacheBytes)
	if opts.Render == nil {
		opts.Render = NewChartCache(DefaultChartCacheBytes).Render
	}
	return &Renderer{opts: opts, entries: map[string]*list.Element{}, latest: map[string]*list.Element{},
		recent: list.New()}
}

// Render returns the cached result for the digest of req, or renders. The caller may modify the
// result. The result has no Trace.
func (r *Renderer) Render(ctx context.Context, req Request) (Result, error) {
	return r.RenderWithDecryption(ctx, req, nil)
}

// RenderWithDecryption is like Render for a source with encrypted files, see the function
// RenderWithDecryption. Cached results are reused for the same req.DecryptionKeyID without
// decrypting again.
func (r *Renderer) RenderWithDecryption(ctx context.Context, req Request, decrypt Decrypter) (Result, error) {
	digest, err := Digest(req)
	if err != nil {
		return Result{}, err
	}
	if e := r.lookup(digest); e != nil {
		return e.decode(digest, req.Stack)
	}
	base, err := baseDigest(req)
	if err != nil {
		return Result{}, err
	}
	if e := r.lookupPrevious(base); e != nil && e.matches(req.Root) {
		r.rekey(e, digest)
		return e.decode(digest, req.Stack)
	}
	result, err := RenderWithDecryption(ctx, req, decrypt, func(ctx context.Context, with Request) (Result, error) {
		began := time.Now()
		result, err := r.renderRecovering(ctx, with)
		_, encrypted := errors.AsType[*EncryptedError](err)
		_, incomplete := errors.AsType[*MissingChartsError](err)
		_, otherFacts := errors.AsType[*MissingFactsError](err)
		if tried := encrypted && decrypt != nil || incomplete || otherFacts; r.opts.OnRender != nil && !tried {
			r.opts.OnRender(req, time.Since(began), err) // req, not with: no decrypted content
		}
		return result, err
	})
	if missing, ok := errors.AsType[*MissingChartsError](err); ok {
		e := &cacheEntry{digest: digest, base: base, missing: missing.Charts}
		return Result{}, errors.Join(err, r.store(e, Result{}, missing.Trace))
	}
	if err != nil {
		return Result{}, err
	}
	trace := result.Trace
	result.Trace = nil
	if next := result.NextReleases(req.Releases); len(result.Generated) > 0 || !maps.Equal(next, req.Releases) {
		// the next request has these values and records
		req.Generate, req.Releases = req.Generate.With(result.Generated), next
		if digest, err = Digest(req); err != nil {
			return Result{}, err
		}
		if base, err = baseDigest(req); err != nil {
			return Result{}, err
		}
	}
	result.Digest = digest
	cached := result
	cached.Generated = nil
	return result, r.store(&cacheEntry{digest: digest, base: base}, cached, trace)
}

// baseDigest returns the digest of a request without the revision of the source.
func baseDigest(req Request) (string, error) {
	req.Digest = ""
	return Digest(req)
}

// lookup returns the cache entry of a digest, or nil.
func (r *Renderer) lookup(digest string) *cacheEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, hit := r.entries[digest]
	if !hit {
		return nil
	}
	r.recent.MoveToFront(at)
	return entryOf(at)
}

// lookupPrevious returns the cache entry of an earlier revision of the source, or nil.
func (r *Renderer) lookupPrevious(base string) *cacheEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.latest[base]; at != nil {
		return entryOf(at)
	}
	return nil
}

// matches returns true if all files that the cached render read are unchanged in the source.
func (e *cacheEntry) matches(root string) bool {
	var trace map[string]string
	if decompress(e.trace, math.MaxInt64, &trace) != nil {
		return false
	}
	tree, err := source.Open(root)
	if err != nil {
		return false
	}
	defer tree.Close()
	return tree.Matches(trace)
}

// rekey moves an entry to the digest of a new revision. Requests for the old revision are not
// expected.
func (r *Renderer) rekey(e *cacheEntry, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.entries[e.digest]
	if at == nil || entryOf(at) != e || r.entries[digest] != nil {
		return
	}
	delete(r.entries, e.digest)
	e.digest = digest
	r.entries[digest] = at
	r.recent.MoveToFront(at)
}

// renderRecovering calls opts.Render and returns a panic as an error.
func (r *Renderer) renderRecovering(ctx context.Context, req Request) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Stack: req.Stack, Message: fmt.Sprintf("the renderer panicked: %v", v)}
		}
	}()
	return r.opts.Render(ctx, req)
}

// store caches a result and evicts the least recently used ones.
func (r *Renderer) store(e *cacheEntry, result Result, trace map[string]string) error {
	result.Digest = ""
	var err error
	if e.result, err = compress(result); err == nil {
		e.trace, err = compress(trace)
	}
	if err != nil {
		return fmt.Errorf("caching the render result: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.entries[e.digest]; there || e.size() > r.opts.CacheBytes {
		return nil
	}
	at := r.recent.PushFront(e)
	r.entries[e.digest], r.latest[e.base] = at, at
	r.bytes += e.size()
	for r.bytes > r.opts.CacheBytes {
		oldest := r.recent.Back()
		old := entryOf(oldest)
		r.recent.Remove(oldest)
		delete(r.entries, old.digest)
		if r.latest[old.base] == oldest {
			delete(r.latest, old.base)
		}
		r.bytes -= old.size()
	}
	return nil
}

// compressors pools flate writers: each allocates tables of almost 1 MiB, whatever it compresses.
var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // cannot happen: BestSpeed is a valid level
	}
	return w
}}

// compress returns the compressed JSON of a value.
func compress(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(&b)
	_, err = w.Write(raw)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// decompress decodes what compress returned, if it has at most limit bytes.
func decompress(compressed []byte, limit int64, into any) error {
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(compressed)), limit))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// decode returns the cached result with the given digest, or the cached MissingChartsError.
func (e *cacheEntry) decode(digest, stack string) (Result, error) {
	out := Result{}
	if len(e.missing) > 0 {
		return out, &MissingChartsError{Stack: stack, Charts: e.missing}
	}
	if err := decompress(e.result, math.MaxInt64, &out); err != nil {
		return Result{}, fmt.Errorf("reading the cached render result: %w", err)
	}
	out.Digest = digest
	return out, nil
}
