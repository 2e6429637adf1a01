package artifact

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	treeName   = "tree"     // the unpacked files, in <cache>/<digest>/
	markerName = "complete" // in <cache>/<digest>/, written after the tree is complete
	tempPrefix = "tmp-"     // files of a killed process, removed when the cache is opened
	blockSize  = 4096       // disk space of a file or directory in addition to its content
)

// cache keeps unpacked trees in <dir>/<digest>/. It evicts the least recently used trees
// when the total exceeds maxBytes. Only one process may use dir.
type cache struct {
	dir      string
	maxBytes int64

	mu         sync.Mutex
	entries    map[string]*entry
	total      int64
	useCounter int64
}

type entry struct {
	sum    string
	size   Size
	leases int
	// lastUse orders entries by use: an entry with a larger number was used later.
	lastUse int64
	// checked is true if this process has checked that the tree is complete.
	checked bool
}

func (e *entry) diskBytes() int64 { return e.size.Bytes + int64(e.size.Files)*blockSize }

// openCache loads the trees that an earlier process completed, and removes incomplete ones.
func openCache(dir string, maxBytes int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, wrapError(Storage, err, "opening the cache")
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, wrapError(Storage, err, "opening the cache")
	}
	c := &cache{dir: dir, maxBytes: maxBytes, entries: map[string]*entry{}}
	for _, d := range found {
		name := d.Name()
		switch {
		case strings.HasPrefix(name, tempPrefix):
			err = os.RemoveAll(filepath.Join(dir, name))
		case sha256Pattern.MatchString(name):
			err = c.loadEntry(name)
		}
		if err != nil {
			return nil, wrapError(Storage, err, "cleaning the cache")
		}
	}
	c.renumber()
	return c, storageError(c.evict())
}

func (c *cache) loadEntry(sum string) error {
	path := filepath.Join(c.dir, sum)
	size, lastUse, err := readMarker(path)
	if err != nil {
		return os.RemoveAll(path)
	}
	e := &entry{sum: sum, size: size, lastUse: lastUse.UnixNano()}
	c.entries[sum] = e
	c.total += e.diskBytes()
	return nil
}

// renumber replaces modification times by the use counter, which can't jump back.
func (c *cache) renumber() {
	for _, e := range c.entriesByUse() {
		c.useCounter++
		e.lastUse = c.useCounter
	}
}

func (c *cache) entriesByUse() []*entry {
	return slices.SortedFunc(maps.Values(c.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.lastUse, b.lastUse), strings.Compare(a.sum, b.sum))
	})
}

func (c *cache) root(sum string) string { return filepath.Join(c.dir, sum, treeName) }

// lease leases a tree that this process has checked, and returns false if there is none.
func (c *cache) lease(sum string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[sum]
	if e == nil || !e.checked {
		return false
	}
	c.addLease(e)
	return true
}

func (c *cache) addLease(e *entry) {
	e.leases++
	c.useCounter++
	e.lastUse = c.useCounter
}

// checkAndLease leases a tree of an earlier process after it checks that the tree is
// complete. The caller must ensure that nothing else checks or adds the same digest at the
// same time.
func (c *cache) checkAndLease(ctx context.Context, sum string) (bool, error) {
	c.mu.Lock()
	e := c.entries[sum]
	if e == nil {
		c.mu.Unlock()
		return false, nil
	}
	c.addLease(e)
	checked := e.checked
	c.mu.Unlock()
	if checked {
		return true, nil
	}
	size, err := measure(ctx, c.root(sum))
	if err == nil && size == e.size {
		c.mu.Lock()
		e.checked = true
		c.mu.Unlock()
		return true, nil
	}
	if ctx.Err() != nil {
		c.release(sum)
		return false, wrapError(Unreachable, context.Cause(ctx), "interrupted while checking the cache")
	}
	return false, storageError(c.discard(e))
}

// discard removes a leased tree that is incomplete.
func (c *cache) discard(e *entry) error {
	c.mu.Lock()
	e.leases--
	aside, err := c.moveAside(e)
	c.mu.Unlock()
	return cmp.Or(err, os.RemoveAll(aside))
}

// add moves the tree in <temp>/tree into the cache and leases it.
func (c *cache) add(temp, sum string, size Size) error {
	if err := writeMarker(temp, size); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Rename(temp, filepath.Join(c.dir, sum)); err != nil {
		return err
	}
	e := &entry{sum: sum, size: size, checked: true}
	c.entries[sum] = e
	c.total += e.diskBytes()
	c.addLease(e)
	return nil
}

// release returns a lease, which kept the entry in the cache.
func (c *cache) release(sum string) {
	c.mu.Lock()
	e := c.entries[sum]
	e.leases--
	last := e.leases == 0
	c.mu.Unlock()
	if last {
		// The next process uses the modification time of the marker as the time of last use.
		now := time.Now()
		_ = os.Chtimes(filepath.Join(c.dir, sum, markerName), now, now)
	}
	// A tree that can't be evicted stays accounted for, and a later release retries.
	_ = c.evict()
}

// evict removes unused trees, the least recently used first, until the rest fits.
func (c *cache) evict() error {
	c.mu.Lock()
	var aside []string
	var err error
	if c.total > c.maxBytes {
		for _, e := range c.entriesByUse() {
			if c.total > c.maxBytes && e.leases == 0 && err == nil {
				var path string
				path, err = c.moveAside(e)
				aside = append(aside, path)
			}
		}
	}
	c.mu.Unlock()
	for _, path := range aside {
		err = cmp.Or(err, os.RemoveAll(path))
	}
	return err
}

// moveAside renames a tree, so that a partly removed tree never has the name of a digest,
// and drops its entry. The caller removes the returned directory without holding the lock. It is
// empty after an error, and os.RemoveAll ignores that.
func (c *cache) moveAside(e *entry) (string, error) {
	aside, err := os.MkdirTemp(c.dir, tempPrefix+"evicted-")
	if err != nil {
		return "", err
	}
	err = os.Rename(filepath.Join(c.dir, e.sum), filepath.Join(aside, treeName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	delete(c.entries, e.sum)
	c.total -= e.diskBytes()
	return aside, nil
}
