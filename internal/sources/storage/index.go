package storage

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// DefaultBytes is the default limit on the total size of artifacts on disk.
const DefaultBytes = 2 << 30

// index tracks the artifacts on disk by path, and selects those to evict.
type index struct {
	max int64

	mu       sync.Mutex
	files    map[string]*entry
	total    int64
	sequence int64
}

// entry is one artifact.
type entry struct {
	size int64
	// lastUsed orders artifacts by their last use: the larger number is the later use.
	lastUsed int64
	// current is true for the artifact that the status of its owner refers to.
	current bool
	// verified is true once this process has verified the content.
	verified bool
}

// FullError means that an artifact does not fit into the size limit.
type FullError struct {
	// Need is the size of the artifact, Max the limit on the size of all artifacts.
	Need, Max int64
}

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("an artifact of %d bytes does not fit: artifacts in use take up the rest of the limit of %d "+
		"bytes; raise --source-storage-bytes, "+
		"exclude files with spec.ignore of a KsctlSource, or delete sources or installs that publish", e.Need, e.Max)
}

// scan adds the artifacts that an earlier process left on disk.
func (b *index) scan(root fs.FS) error {
	type found struct {
		name string
		info fs.FileInfo
	}
	var all []found
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // an unreadable file is reported when it is used
		}
		if info, err := d.Info(); err == nil {
			all = append(all, found{name, info})
		}
		return nil
	})
	slices.SortStableFunc(all, func(x, y found) int { return x.info.ModTime().Compare(y.info.ModTime()) })
	for _, f := range all {
		b.add(f.name, f.info.Size())
	}
	return err
}

// add adds an artifact, or replaces it.
func (b *index) add(name string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.files[name]; old != nil {
		b.total -= old.size
	}
	b.sequence++
	b.files[name] = &entry{size: size, lastUsed: b.sequence}
	b.total += size
}

// remove removes an artifact from the index.
func (b *index) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.files[name]; old != nil {
		b.total -= old.size
		delete(b.files, name)
	}
}

func (b *index) isVerified(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[name] != nil && b.files[name].verified
}

// markCurrent marks an artifact as verified and as the current one of its owner.
func (b *index) markCurrent(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, h := range b.files {
		if path.Dir(other) == path.Dir(name) {
			h.current = other == name
		}
	}
	if h := b.files[name]; h != nil {
		b.sequence++
		h.lastUsed, h.verified = b.sequence, true
	}
}

// evictable returns the artifacts to remove so that one more fits into the folder of an owner:
// first artifacts that are not current, least recently used first, then the current artifact of
// that owner. It returns a *FullError if that does not suffice.
func (b *index) evictable(size int64, folder string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name, h := range b.files {
		if !h.current || strings.HasPrefix(name, folder+"/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int {
		if cx, cy := b.files[x].current, b.files[y].current; cx != cy {
			if cy {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.files[x].lastUsed, b.files[y].lastUsed)
	})
	left := b.total + size
	for i, name := range names {
		if left <= b.max {
			return names[:i], nil
		}
		left -= b.files[name].size
	}
	if left > b.max {
		return nil, &FullError{Need: size, Max: b.max}
	}
	return names, nil
}
