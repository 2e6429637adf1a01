package stacks

import (
	"bytes"
	"compress/flate"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks/internal/source"
)

// DefaultCacheBytes bounds what a Renderer remembers, compressed.
const DefaultCacheBytes = 64 << 20

// RendererOptions of a Renderer.
type RendererOptions struct {
	// CacheBytes bounds the remembered results, compressed. DefaultCacheBytes when 0.
	CacheBytes int64
	// Render does the work; the function Render when unset. Another one may have a
	// worker process do it.
	Render func(context.Context, Request) (Result, error)
	// OnRender is called after each render that was really done.
	OnRender func(req Request, took time.Duration, err error)
}

// Renderer renders each digest once: results are remembered. A new revision of the
// source that changed nothing that a render reads costs no render either. It is safe
// for concurrent use.
type Renderer struct {
	opts RendererOptions

	mu      sync.Mutex
	entries map[string]*list.Element // of *entry, by digest
	latest  map[string]*list.Element // of *entry, by base
	recent  *list.List
	bytes   int64
}

type entry struct {
	digest string
	// base is the digest without the revision of the source.
	base string
	// result, without its digest and its trace, and the trace are compressed.
	result, trace []byte
}

func (e *entry) size() int64 { return int64(len(e.result) + len(e.trace)) }

func entryOf(at *list.Element) *entry {
	e, _ := at.Value.(*entry) // nothing else is put into the list
	return e
}

// NewRenderer returns an empty Renderer.
func NewRenderer(opts RendererOptions) *Renderer {
	if opts.CacheBytes == 0 {
		opts.CacheBytes = DefaultCacheBytes
	}
	if opts.Render == nil {
		opts.Render = Render
	}
	return &Renderer{opts: opts, entries: map[string]*list.Element{}, latest: map[string]*list.Element{}, recent: list.New()}
}

// Render returns what was remembered for the digest of req, or renders. The result
// is the caller's own; it has no trace.
func (r *Renderer) Render(ctx context.Context, req Request) (Result, error) {
	return r.RenderDecrypting(ctx, req, nil)
}

// RenderDecrypting is Render for what may be encrypted: see Decrypting. What is remembered
// for the keys that req.Keys names is not decrypted again.
func (r *Renderer) RenderDecrypting(ctx context.Context, req Request, open Opener) (Result, error) {
	digest, err := Digest(req)
	if err != nil {
		return Result{}, err
	}
	if e := r.remembered(digest); e != nil {
		return e.expand(digest)
	}
	anyRevision := req
	anyRevision.Digest = ""
	base, err := Digest(anyRevision)
	if err != nil {
		return Result{}, err
	}
	if e := r.before(base); e != nil && e.matches(req.Root) {
		r.moveOn(e, digest)
		return e.expand(digest)
	}
	result, err := Decrypting(ctx, req, open, func(ctx context.Context, with Request) (Result, error) {
		began := time.Now()
		result, err := r.guarded(ctx, with)
		_, tried := errors.AsType[*EncryptedError](err)
		if r.opts.OnRender != nil && (open == nil || !tried) {
			r.opts.OnRender(req, time.Since(began), err) // what was decrypted is told nobody
		}
		return result, err
	})
	if err != nil {
		return Result{}, err
	}
	trace := result.Trace
	result.Digest, result.Trace = digest, nil
	return result, r.remember(&entry{digest: digest, base: base}, result, trace)
}

// remembered is the entry of a digest; nil if there is none.
func (r *Renderer) remembered(digest string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, hit := r.entries[digest]
	if !hit {
		return nil
	}
	r.recent.MoveToFront(at)
	return entryOf(at)
}

// before is the entry of an earlier revision; nil if there is none.
func (r *Renderer) before(base string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.latest[base]; at != nil {
		return entryOf(at)
	}
	return nil
}

// matches says whether the source has the same everywhere where it was read.
func (e *entry) matches(root string) bool {
	var trace map[string]string
	raw, err := expand(e.trace)
	if err != nil || json.Unmarshal(raw, &trace) != nil {
		return false
	}
	tree, err := source.Open(root)
	if err != nil {
		return false
	}
	defer func() { _ = tree.Close() }()
	return tree.Matches(trace)
}

// moveOn makes an entry that of another revision: nobody asks for the one before.
func (r *Renderer) moveOn(e *entry, digest string) {
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

// guarded turns a panic into an error of this render only.
func (r *Renderer) guarded(ctx context.Context, req Request) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Stack: req.Stack, Message: fmt.Sprintf("the renderer gave up: %v", v)}
		}
	}()
	return r.opts.Render(ctx, req)
}

// remember keeps a result and forgets those that were not asked for the longest.
func (r *Renderer) remember(e *entry, result Result, trace map[string]string) error {
	result.Digest = ""
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("a render cannot be remembered: %w", err)
	}
	read, err := json.Marshal(trace)
	if err != nil {
		return fmt.Errorf("a render cannot be remembered: %w", err)
	}
	e.result, e.trace = compress(raw), compress(read)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.entries[e.digest]; there || e.result == nil || e.size() > r.opts.CacheBytes {
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

// compressors are kept: each has tables of most of a megabyte, whatever it compresses.
var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is one of the package's own
	}
	return w
}}

func compress(raw []byte) []byte {
	var b bytes.Buffer
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(&b)
	if _, err := w.Write(raw); err != nil || w.Close() != nil {
		return nil
	}
	return b.Bytes()
}

func expand(compressed []byte) ([]byte, error) {
	return io.ReadAll(flate.NewReader(bytes.NewReader(compressed)))
}

// expand is the result as that of a digest.
func (e *entry) expand(digest string) (Result, error) {
	raw, err := expand(e.result)
	if err == nil {
		out := Result{}
		if err = json.Unmarshal(raw, &out); err == nil {
			out.Digest = digest
			return out, nil
		}
	}
	return Result{}, fmt.Errorf("a remembered render cannot be read: %w", err)
}
