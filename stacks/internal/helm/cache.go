package helm

import (
	"container/list"
	"sync"
)

// Cache keeps loaded charts for later renders, the most recently used ones. A chart is found by the
// digest of its files, which are always read. It is safe for concurrent use. A nil Cache is empty.
type Cache struct {
	maxBytes int64

	mu      sync.Mutex
	entries map[cacheKey]*list.Element // of *cacheEntry
	recent  *list.List                 // of *cacheEntry, most recently used first
	bytes   int64
}

// cacheKey identifies a chart that was loaded within limits.
type cacheKey struct {
	// digest of the files before vendored archives are unpacked.
	digest string
	limits Limits
}

type cacheEntry struct {
	key     cacheKey
	content *content
	bytes   int64
}

// NewCache returns an empty Cache for charts that take about maxBytes of memory.
func NewCache(maxBytes int64) *Cache {
	return &Cache{maxBytes: maxBytes, entries: map[cacheKey]*list.Element{}, recent: list.New()}
}

// get returns a loaded chart, or nil.
func (k *Cache) get(key cacheKey) *content {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.entries[key]
	if at == nil {
		return nil
	}
	k.recent.MoveToFront(at)
	return entryOf(at).content
}

// put keeps a loaded chart and drops the least recently used ones.
func (k *Cache) put(key cacheKey, loaded *content) {
	if k == nil {
		return
	}
	e := &cacheEntry{key: key, content: loaded, bytes: loaded.memoryBytes()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries[key] != nil || e.bytes > k.maxBytes {
		return
	}
	k.entries[key] = k.recent.PushFront(e)
	for k.bytes += e.bytes; k.bytes > k.maxBytes; {
		oldest := k.recent.Back()
		old := entryOf(oldest)
		k.recent.Remove(oldest)
		delete(k.entries, old.key)
		k.bytes -= old.bytes
	}
}

func entryOf(at *list.Element) *cacheEntry {
	e, _ := at.Value.(*cacheEntry) // the list has no other type
	return e
}
