package artifact

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	treeName   = "tree"     // the unpacked files, in <cache>/<digest>/
	markerName = "complete" // stands beside it once all of it is written
	tempPrefix = "tmp-"     // what a process left that was killed is thrown away
	blockSize  = 4096       // what a file or folder takes on disk beyond its bytes
)

// cache keeps unpacked trees in <dir>/<digest>/ and forgets the ones that were
// unused for longest when they take too much room. One process owns dir.
type cache struct {
	dir string
	max int64

	mu      sync.Mutex
	entries map[string]*entry
	total   int64
	clock   int64
}

type entry struct {
	sum    string
	size   Size
	leases int
	// used orders entries: a larger number was used later.
	used int64
	// checked is true when this process has seen that the tree is whole.
	checked bool
}

func (e *entry) room() int64 { return e.size.Bytes + int64(e.size.Files)*blockSize }

// openCache takes over what an earlier process left whole and removes the rest.
func openCache(dir string, maxBytes int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failBy(Storage, err, "opening the cache")
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, failBy(Storage, err, "opening the cache")
	}
	c := &cache{dir: dir, max: maxBytes, entries: map[string]*entry{}}
	for _, d := range found {
		name := d.Name()
		switch {
		case strings.HasPrefix(name, tempPrefix):
			err = os.RemoveAll(filepath.Join(dir, name))
		case isHex(name):
			err = c.takeOver(name)
		}
		if err != nil {
			return nil, failBy(Storage, err, "cleaning the cache")
		}
	}
	c.order()
	return c, storageError(c.evict())
}

func (c *cache) takeOver(sum string) error {
	path := filepath.Join(c.dir, sum)
	size, used, err := readMarker(path)
	if err != nil {
		return os.RemoveAll(path)
	}
	e := &entry{sum: sum, size: size, used: used.UnixNano()}
	c.entries[sum] = e
	c.total += e.room()
	return nil
}

// order replaces times of files by the cache's own count, which can't jump back.
func (c *cache) order() {
	for _, e := range c.byUse() {
		c.clock++
		e.used = c.clock
	}
}

func (c *cache) byUse() []*entry {
	all := make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if a.used != b.used {
			if a.used < b.used {
				return -1
			}
			return 1
		}
		return strings.Compare(a.sum, b.sum)
	})
	return all
}

func (c *cache) root(sum string) string { return filepath.Join(c.dir, sum, treeName) }

// lease takes a tree that is known to be whole, if it is there.
func (c *cache) lease(sum string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[sum]
	if e == nil || !e.checked {
		return false
	}
	c.use(e)
	return true
}

func (c *cache) use(e *entry) {
	e.leases++
	c.clock++
	e.used = c.clock
}

// adopt looks whether a tree that another process left is whole, and leases it.
// The caller makes sure that nobody else adopts or adds that digest meanwhile.
func (c *cache) adopt(ctx context.Context, sum string) (bool, error) {
	c.mu.Lock()
	e := c.entries[sum]
	if e == nil {
		c.mu.Unlock()
		return false, nil
	}
	c.use(e)
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
		return false, failBy(Unreachable, context.Cause(ctx), "interrupted while checking the cache")
	}
	return false, storageError(c.discard(e))
}

// discard forgets a leased tree that is not whole.
func (c *cache) discard(e *entry) error {
	c.mu.Lock()
	gone, err := c.forget(e)
	if err != nil {
		e.leases--
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// add moves a tree into the cache that was unpacked in <temp>/tree, and leases it.
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
	c.total += e.room()
	c.use(e)
	return nil
}

// release gives a lease back.
func (c *cache) release(sum string) {
	c.mu.Lock()
	e := c.entries[sum]
	last := e != nil && e.leases == 1
	if e != nil {
		e.leases--
	}
	c.mu.Unlock()
	if last {
		// The time of the marker tells the next process when the tree was used.
		now := time.Now()
		_ = os.Chtimes(filepath.Join(c.dir, sum, markerName), now, now)
	}
	// What could not be removed stays accounted for and is tried again later.
	_ = c.evict()
}

// evict removes unused trees, longest unused first, until the rest fits.
func (c *cache) evict() error {
	c.mu.Lock()
	var gone []string
	var err error
	if c.total > c.max {
		for _, e := range c.byUse() {
			if c.total <= c.max {
				break
			}
			if e.leases > 0 {
				continue
			}
			var path string
			if path, err = c.forget(e); err != nil {
				break
			}
			gone = append(gone, path)
		}
	}
	c.mu.Unlock()
	for _, path := range gone {
		if rerr := os.RemoveAll(path); rerr != nil && err == nil {
			err = rerr
		}
	}
	return err
}

// forget moves a tree aside, so that half a tree never has a digest for a
// name, and drops it from the books. The caller removes it without the lock.
func (c *cache) forget(e *entry) (string, error) {
	aside, err := os.MkdirTemp(c.dir, tempPrefix+"evicted-")
	if err != nil {
		return "", err
	}
	err = os.Rename(filepath.Join(c.dir, e.sum), filepath.Join(aside, treeName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	delete(c.entries, e.sum)
	c.total -= e.room()
	return aside, nil
}
